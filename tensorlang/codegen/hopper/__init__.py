"""Lowering for Hopper: warp roles, mbarriers, bulk (TMA) copies, `wgmma` products."""
