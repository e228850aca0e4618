#!/usr/bin/env bash
python3 -m sglang.launch_server \
  --model-path Qwen/Qwen3-235B-A22B-Instruct-2507-FP8 \
  --tp 4 \
  --host 127.0.0.1
