#!/usr/bin/env bash
python3 -m sglang.launch_server \
  --model-path nvidia/Qwen3-32B-NVFP4 \
  --quantization modelopt_fp4 \
  --host 127.0.0.1
