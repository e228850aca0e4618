#!/usr/bin/env bash
python3 -m sglang.launch_server \
  --model-path meta-llama/Llama-4-Scout-17B-16E-Instruct \
  --tp 8 \
  --context-length 1000000 \
  --host 127.0.0.1 \
  --chat-template llama-4
