#!/usr/bin/env bash
python3 -m sglang.launch_server \
  --model-path deepseek-ai/DeepSeek-V3-0324 \
  --tp 8 \
  --dp 8 \
  --enable-dp-attention \
  --moe-a2a-backend deepep \
  --deepep-mode auto \
  --trust-remote-code \
  --host 127.0.0.1 \
  --mem-fraction-static 0.83 \
  --cuda-graph-bs-decode 1 2 4 8 16 32 64 128
