#!/usr/bin/env bash
docker run -d --gpus all --shm-size 32g -p 127.0.0.1:30000:30000 -v /models:/models -e HF_HUB_OFFLINE=1 \
  lmsysorg/sglang:v0.5.16 \
  python3 -m sglang.launch_server \
  --model-path /models/Qwen3-32B-FP8 \
  --tp 4 \
  --host 0.0.0.0 \
  --port 30000 \
  --api-key sk-an-example-key \
  --admin-api-key sk-another-example-key \
  --enable-metrics
