"""Artifacts on their way to users: packages for apps, deliveries, servers, selective builds."""
