"""Settings of every test process, made before anything imports torch."""

import os

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # backends are loaded by the processes under test alone
os.environ["HF_HUB_OFFLINE"] = "1"
