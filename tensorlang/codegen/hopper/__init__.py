"""Roles, barrier objects, bulk copies and products of warpgroups, on Hopper."""
