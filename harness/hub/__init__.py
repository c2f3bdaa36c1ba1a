"""The one place that talks to the Hub: it fetches configs and checkpoints ahead of a run, and knows what it fetched.

    client.py      huggingface_hub's own client, made patient: retries, pauses and a budget of requests for each model
    fetch.py       one model's config or weights, checked against what the Hub says of them
    choice.py      which files of a repository make up its checkpoint
    unpickled.py   weights that were pickled, made safetensors
    index.py       what became of each model that was fetched, as `zoo run` reads it
    space.py       the cache's quota, and who is using what of it

Nothing here imports torch, but a process that unpickles, and `index.py` imports nothing that talks to a network.
"""
