"""The files in `deploy/` are what the programs that read them take, and name what there is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from mmsp.integration.server.app import ServerApp, Settings
from mmsp.integration.server.command import serve
from mmsp.integration.server.config import load_server_config
from mmsp.integration.server.options import PORT
from mmsp.integration.server.routes import ROUTES

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"

COMPOSE: Any = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
PROMETHEUS: Any = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
SERVERS = [name for name in COMPOSE["services"] if name.startswith("server-")]
FLAGS = {flag for option in serve.params for flag in (*option.opts, *option.secondary_opts)}


def test_nginx_takes_its_file(tmp_path: Path) -> None:
    if shutil.which("nginx") is None:
        pytest.skip("nginx is not installed")
    text = (DEPLOY / "nginx.conf").read_text()
    for name in SERVERS:
        text = text.replace(f"{name}:", "127.0.0.1:")
    paths = "".join(
        f"{kind}_temp_path {tmp_path}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    text = text.replace("http {", f"http {{ access_log off; {paths}")
    path = tmp_path / "nginx.conf"
    path.write_text(f"pid {tmp_path}/pid; {text}")
    command = ["nginx", "-t", "-e", "stderr", "-p", str(tmp_path), "-c", str(path)]
    said = subprocess.run(command, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr


def test_nginx_passes_events_on_as_they_come() -> None:
    text = (DEPLOY / "nginx.conf").read_text()
    for line in ("proxy_buffering off;", "proxy_http_version 1.1;", 'Connection "";'):
        assert line in text
    timeout = re.search(r"proxy_read_timeout (\d+)s;", text)
    assert timeout is not None
    assert int(timeout[1]) > Settings().pace.keep_alive
    assert set(re.findall(r"server (server-\d+):(\d+);", text)) == {
        (name, str(PORT)) for name in SERVERS
    }


def test_the_servers_get_options_that_exist() -> None:
    assert len(SERVERS) == 2
    for name in SERVERS:
        service = COMPOSE["services"][name]
        given = [word.partition("=")[0] for word in service["command"]]
        assert set(given) <= FLAGS
        grace = next(word for word in service["command"] if word.startswith("--grace="))
        assert int(service["stop_grace_period"].rstrip("s")) > float(grace.partition("=")[2])
    container = (DEPLOY / "Containerfile").read_text()
    assert set(re.findall(r'"(--[a-z-]+)"', container)) <= FLAGS
    assert f"EXPOSE {PORT}" in container


def test_the_files_that_are_named_are_there() -> None:
    for service in COMPOSE["services"].values():
        for volume in service.get("volumes", ()):
            assert (DEPLOY / volume.partition(":")[0]).is_file()
        if "build" in service:
            context = DEPLOY / service["build"]["context"]
            assert (context / service["build"]["dockerfile"]).is_file()
    copied = re.findall(r"^COPY (.+) \S+$", (DEPLOY / "Containerfile").read_text(), re.MULTILINE)
    for name in " ".join(copied).split():
        assert (ROOT / name).exists()


def test_prometheus_asks_the_servers_for_a_route_that_exists() -> None:
    (job,) = PROMETHEUS["scrape_configs"]
    assert job["metrics_path"] in {route.path for route in ROUTES}
    (group,) = job["static_configs"]
    assert group["targets"] == [f"{name}:{PORT}" for name in SERVERS]


def test_the_table_is_good(monkeypatch: pytest.MonkeyPatch) -> None:
    path = DEPLOY / "server.json"
    environment = COMPOSE["services"][SERVERS[0]]["environment"]
    assert set(re.findall(r"\$([A-Z_]+)", path.read_text())) == environment.keys()
    for name in environment:
        monkeypatch.setenv(name, "a-key")
    assert ServerApp(load_server_config(path), Settings()).table.ids == [
        row["server_model_id"] for row in json.loads(path.read_text())["models"]
    ]


def test_the_page_tells_every_option_and_every_route() -> None:
    page = (ROOT / "docs" / "server.md").read_text()
    for flag in FLAGS:
        assert f"`{flag}" in page or f" {flag}`" in page, flag
    for route in ROUTES:
        assert route.path in page
