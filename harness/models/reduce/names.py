"""What a config field is about, by its name."""

from __future__ import annotations

import re

WIDTHS = re.compile(
    r"hidden_size|d_model|dim|n_embd|embed_dim|emb_dim|projection_dim|projection_size|word_embed_proj_dim|pooler_output_size"
    r"|\w+_hidden_size|lru_width|codevector_dim|proj_codevector_dim|classifier_proj_size|xvector_output_dim"
    r"|shared_latent_size|proj_dim|hidden_channels|auxiliary_channels|\w+_embed_dim"
)
INNERS = re.compile(
    r"intermediate_size|\w*ffn_dim|d_ff|hidden_dim|ffn_hidden_size|n_inner|block_ff_dim|\w+_intermediate_size"
)
LAYERS = re.compile(
    r"(\w+_)?(num_hidden_layers|num_layers|n_layers?|depth)|layers|(\w+_)?(encoder|decoder)_layers|num_\w+_layers"
)
HEADS = re.compile(r"(\w+_)?(num_attention_heads|attention_heads|num_heads|n_heads?|attn_heads)")
KEY_HEADS = re.compile(r"(\w+_)?(num_key_value_heads|num_kv_heads|num_key_heads|n_kv_heads?)")
EXPERTS = re.compile(r"num_experts|num_local_experts|n_routed_experts|moe_num_experts")
TOP_K = re.compile(r"num_experts_per_tok(en)?|moe_topk|moe_k|top_k_experts|experts_per_token")
WINDOWS = re.compile(
    r"sliding_window(_size)?|local_attention(_window_len)?|attention_window(_size)?|keep_window_size"
    r"|(mamba_)?chunk_size|attention_chunk_size|block_size|local_transformer_stride"
)
POSITIONS = re.compile(r"max_position_embeddings|n_positions|max_(source|target)_positions")
PATTERNS = re.compile(r"(\w+_)?(layer|block)s?_types?|layers_block_type|hybrid_layer_pattern")
LAYER_INDICES = re.compile(
    r"\w*(layer_(ind(ic|ex)es|idxs?|ids)|layers?_idxs?|_idxs|_(indexes|indices)|attention_layers|mlp_only_layers"
    r"|look_(ahead|backward)_layers)"
)
KINDS_BY_INDEX = re.compile(r"\w*(att|window|hybrid|mlp_only|look_)\w*")
"""Those lists of layers that are built differently; the others are layers whose outputs are taken."""
SIZES = re.compile(r"\w*(dim|size|channels|out_channel|width|features|groups)")
TOKENS = re.compile(r"\w*_token_(id|index)|\w+_token_ids|(im|codec)_\w+_id|begin_suppress_tokens|suppress_tokens")
STAGE_WIDTHS = re.compile(
    r"hidden_sizes|embed_dims?|neck_hidden_sizes|encoder_hidden_sizes|decoder_hidden_sizes|fusion_hidden_sizes"
    r"|embed_dim_per_stage|backbone_channel_list"
)
STAGE_HEADS = re.compile(r"num_heads|num_attention_heads|encoder_num_heads|num_attention_heads_per_stage")
