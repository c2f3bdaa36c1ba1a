"""The results site: static pages, readable from a file or any web server, made from the store alone."""

from __future__ import annotations

from dashboards.site import build

__all__ = ["build"]
