#!/usr/bin/env bash
python3 -m sglang.launch_server \
  --model-path Qwen/Qwen2.5-VL-7B-Instruct \
  --host 127.0.0.1 \
  --enable-multimodal
