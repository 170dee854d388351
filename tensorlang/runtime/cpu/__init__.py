"""CPUs: LLVM, the call wrapper, the launcher and its threads."""
