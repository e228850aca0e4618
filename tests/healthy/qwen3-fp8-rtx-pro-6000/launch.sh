#!/usr/bin/env bash
python3 -m sglang.launch_server \
  --model-path Qwen/Qwen3-32B-FP8 \
  --host 127.0.0.1
