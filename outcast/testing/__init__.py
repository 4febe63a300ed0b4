"""Tests of network programs under pytest; `plugin.py` is the plugin, found by its entry point."""
