"""The tuner of fused-MoE Triton configurations.

What runs beside SGLang's own torch and Triton (kernel, align, operands, compile, measure, child) needs
nothing else, so that it runs with the interpreter of the deployment; the rest never imports them.
"""
