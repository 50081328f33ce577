"""Facts about vendors as data: one small file per vendor, its endpoint included (see README.md)."""
