"""`python -m mmsp.integration.server`"""

from .command import serve

if __name__ == "__main__":
    serve(prog_name="python -m mmsp.integration.server")
