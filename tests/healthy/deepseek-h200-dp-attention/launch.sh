#!/usr/bin/env bash
sglang serve \
  --model-path deepseek-ai/DeepSeek-V3-0324 \
  --tp 8 \
  --attn-dp-size 8 \
  --trust-remote-code \
  --host 127.0.0.1 \
  --max-running-requests 1024
