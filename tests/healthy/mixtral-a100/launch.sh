#!/usr/bin/env bash
python3 -m sglang.launch_server \
  --model-path mistralai/Mixtral-8x7B-Instruct-v0.1 \
  --tp 2 \
  --host 127.0.0.1
