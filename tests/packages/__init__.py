"""What people install: packages, the chart, dashboards and alerts."""
