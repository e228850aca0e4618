#!/usr/bin/env bash
python3 -m sglang.launch_server \
  --model-path deepseek-ai/DeepSeek-V3-0324 \
  --disaggregation-mode prefill \
  --disaggregation-ib-device mlx5_0 \
  --tp 8 \
  --dp 8 \
  --ep 8 \
  --enable-dp-attention \
  --moe-a2a-backend deepep \
  --deepep-mode normal \
  --trust-remote-code \
  --host 127.0.0.1
