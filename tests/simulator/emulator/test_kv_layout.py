"""Groups, block sizes and block counts of models with several kinds of layers."""

import pytest

from windtunnel.simulator.emulator.kv_layout import Group, Layers, Layout, layout

MAX = 262_144


def delta(keys: int, values: int, drafts: int = 0) -> int:
    """State of a gated delta net with heads of 128, float32, beside the 16-bit convolution of width 4, bytes."""
    return (2 * 128 * keys + 128 * values) * (3 + drafts) * 2 + values * 128 * 128 * 4


def hybrid(linear: int, full: int, kv_heads: int, values: int, *, drafts: int = 0, kv_bytes: int = 2) -> Layout:
    token = kv_heads * 256 * 2 * kv_bytes
    layers = [Layers("mamba", linear, state_bytes=delta(16, values, drafts)), Layers("full", full, token_bytes=token)]
    if drafts:
        layers.append(Layers("full", 1, token_bytes=token, drafts=True))
    return layout(layers, max_model_len=MAX, speculative_tokens=drafts)


@pytest.mark.parametrize(
    ("shape", "more", "tokens"),
    [
        ((24, 8, 4, 32), {}, 528),  # Qwen3.5-4B, 9B
        ((48, 16, 4, 48), {}, 784),  # Qwen3.5-27B, Qwen3.6-27B
        ((30, 10, 2, 32), {}, 1056),  # Qwen3.5-35B-A3B
        ((48, 16, 4, 48), {"drafts": 3, "kv_bytes": 1}, 1600),  # Qwen3.6-27B, FP8 cache, three drafts
    ],
)
def test_blocks_grow_until_a_page_holds_a_state(shape: tuple[int, ...], more: dict[str, int], tokens: int) -> None:
    made = hybrid(*shape, **more)
    assert made.block_size == tokens
    states, full = made.groups
    assert (states.kind, states.count, states.block_size) == ("mamba", 3, tokens)
    assert (full.kind, full.count, full.block_size) == ("full", 1, tokens)
    assert full.drafts == ("drafts" in more)
    assert states.speculative_blocks == more.get("drafts", 0)


def test_nemotron_3_super_matches_prefixes_in_units_of_8320_tokens_with_an_fp8_cache() -> None:
    state = (8192 + 2 * 8 * 128) * 3 * 2 + 8192 * 128 * 4
    layers = [Layers("mamba", 40, state_bytes=state, checkpoints=True), Layers("full", 8, token_bytes=2 * 128 * 2)]
    made = layout(layers, max_model_len=MAX)
    assert made.block_size == 8320
    assert [(group.kind, group.count) for group in made.groups] == [("mamba", 5), ("full", 1)]
    # The padding of a state to a page costs a block 8 pages of 8,320 tokens.
    assert made.block_bytes == 8 * 8320 * 512


def test_without_prefix_caching_a_state_is_one_block_of_any_length() -> None:
    made = layout(
        [Layers("mamba", 30, state_bytes=delta(16, 32)), Layers("full", 10, token_bytes=2048)],
        max_model_len=MAX,
        caching=False,
    )
    assert made.groups[0] == Group("mamba", MAX, mamba_mode="none", count=3)
    assert made.groups[1].block_size == 1056


def test_gpt_oss_has_a_group_of_windows_and_one_of_full_attention() -> None:
    made = layout(
        [Layers("window", 12, token_bytes=2048, window=128), Layers("full", 12, token_bytes=2048)],
        max_model_len=131_072,
    )
    assert made.groups == (Group("window", 16, window=128), Group("full", 16))
    # A block serves one group: a page of each of its twelve layers.
    assert made.block_bytes == 12 * 16 * 2048
    assert made.blocks(10 * made.block_bytes + 1) == 10
    # Of a whole context, 8,192 blocks of full attention and, for two steps of 1,024 tokens, 137 of the window.
    assert made.request_blocks(131_072, 2048) == 8192 + 137
    assert made.capacity(16_658, 131_072, 2048) == (262_144, 2.0)


def test_a_draft_layer_makes_the_groups_as_long_as_the_longer_kind() -> None:
    made = layout(
        [
            Layers("window", 12, token_bytes=2048, window=128),
            Layers("full", 12, token_bytes=2048),
            Layers("full", 1, token_bytes=2048, drafts=True),
        ],
        max_model_len=131_072,
    )
    assert [(group.kind, group.count, group.drafts) for group in made.groups] == [
        ("window", 1, False),
        ("full", 1, True),
    ]
    assert made.block_bytes == 13 * 16 * 2048


def test_layers_of_one_kind_are_one_group_whatever_their_size() -> None:
    made = layout([Layers("full", 32, token_bytes=4096), Layers("full", 1, token_bytes=2048)], max_model_len=8192)
    assert made.groups == (Group("full", 16),)
    assert made.block_bytes == 16 * (32 * 4096 + 2048)


def test_five_windows_to_one_are_five_groups() -> None:
    made = layout(
        [Layers("window", 52, token_bytes=1024, window=1024), Layers("full", 10, token_bytes=1024)],
        max_model_len=8192,
    )
    assert [(group.kind, group.count) for group in made.groups] == [("window", 6), ("full", 1)]
    assert made.block_bytes == 10 * 16 * 1024


def test_smaller_pages_get_longer_blocks() -> None:
    made = layout(
        [Layers("window", 10, token_bytes=1024, window=512), Layers("full", 10, token_bytes=2048)], max_model_len=8192
    )
    assert [group.block_size for group in made.groups] == [32, 16]
