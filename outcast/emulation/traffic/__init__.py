"""Flows, probes and captures, and how busy the machine was meanwhile."""
