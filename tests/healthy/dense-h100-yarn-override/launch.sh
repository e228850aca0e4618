#!/usr/bin/env bash
python3 -m sglang.launch_server \
  --model-path Qwen/Qwen3-32B \
  --tp 2 \
  --host 127.0.0.1 \
  --context-length 131072 \
  --json-model-override-args '{"max_position_embeddings":131072,"rope_scaling":{"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":32768}}'
