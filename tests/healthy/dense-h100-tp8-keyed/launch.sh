#!/usr/bin/env bash
API_KEY=sk-an-example-key
sglang serve \
  --model-path meta-llama/Llama-3.3-70B-Instruct \
  --tp 8 \
  --host 0.0.0.0 \
  --port 30000 \
  --api-key "$API_KEY" \
  --enable-metrics \
  --max-running-requests 512
