#!/usr/bin/env bash
python3 -m sglang.launch_server \
  --model-path openai/gpt-oss-20b \
  --moe-runner-backend flashinfer_mxfp4 \
  --host 127.0.0.1
