"""Method to program file: capture, rewriting, lowering to ExecuTorch, compilation with
AOTInductor.
"""
