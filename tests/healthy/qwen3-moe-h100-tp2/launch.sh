#!/usr/bin/env bash
sglang serve \
  --model-path Qwen/Qwen3-30B-A3B-Instruct-2507 \
  --tp 2 \
  --host 127.0.0.1
