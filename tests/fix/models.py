"""Models as their config.json describes them."""

from __future__ import annotations

QWEN3 = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "torch_dtype": "bfloat16",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "max_position_embeddings": 32768,
    "vocab_size": 151936,
}

# On four GPUs each has the share of Qwen3.5-122B-A10B: E=256, N=256, which SGLang ships for no H200.
QWEN35 = QWEN3 | {"num_experts": 256, "moe_intermediate_size": 1024, "hidden_size": 3072}

DENSE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
    "vocab_size": 128256,
}
