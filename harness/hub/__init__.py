"""The one place that talks to the Hub: it fetches configs and checkpoints ahead of a run, and knows what it fetched.

    client.py      huggingface_hub's own client, made patient: retries, pauses and a budget of requests for each model
    fetch.py       one model's config or weights, checked against what the Hub says of them
    facts.py       what the Hub says of one model, of which an entry is drafted
    choice.py      which files of a repository make up its checkpoint
    unpickled.py   weights that were pickled, made safetensors
    index.py       what became of each model that was fetched, as `zoo run` reads it
    space.py       the cache's quota, and who is using what of it
    at_hand.py     an entry with what was fetched for it, as long as somebody uses that

Nothing here imports torch, but a process that unpickles, and neither `index.py` nor `space.py` nor `at_hand.py` imports
anything that talks to a network.
"""
