"""The analytic cost model of CPU schedules: core, traffic, register tiles."""
