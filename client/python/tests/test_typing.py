# SPDX-License-Identifier: Apache-2.0
"""Types that type checkers infer for results. mypy and pyright read this file; nothing in it is
run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_type

if TYPE_CHECKING:
    import grpc
    import jax
    import numpy as np
    import numpy.typing as npt
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Shard

    import attnbias

    Array = npt.NDArray[Any]

    def each_encoding_has_its_own_form(client: attnbias.Client) -> None:
        table = np.zeros((32, 8), np.float32)
        assert_type(client.get(attnbias.Sinusoidal(dim=8), positions=4), Array)
        assert_type(client.get(attnbias.Fire(num_heads=1, hidden_weight=0, output_weight=0)), Array)
        t5 = attnbias.T5(bidirectional=True, num_heads=8, table=table)
        assert_type(t5, attnbias.T5)
        assert_type(client.get(t5, query_length=4, key_length=4), attnbias.Toeplitz)
        assert_type(client.get(t5, query_length=4, key_length=4, causal=True), attnbias.Toeplitz)
        shaw = attnbias.Shaw(left=1, right=1, table=table)
        assert_type(client.get(shaw, query_length=4, key_length=4), attnbias.Toeplitz)
        swin = attnbias.Swin((2, 2), table=table)
        assert_type(client.get(swin), attnbias.BlockToeplitz)
        rotary = client.get(attnbias.Rotary(head_dim=4), positions=4)
        assert_type(rotary, attnbias.RotaryTables)
        assert_type(rotary.cos, Array)
        xpos = client.get(attnbias.Xpos(4, center=4), positions=4)
        assert_type(xpos, attnbias.XposTables)
        assert_type(xpos.scale, Array)
        tupe = client.get(attnbias.Tupe(num_heads=2), query_length=4, key_length=4)
        assert_type(tupe, attnbias.Toeplitz | attnbias.BorderedToeplitz | Array)

    def alibi_has_the_form_of_its_variant(client: attnbias.Client, variant: Any) -> None:
        alibi = client.get(attnbias.ALiBi(num_heads=8), query_length=4, key_length=4)
        assert_type(alibi, attnbias.Toeplitz)
        bloom = attnbias.ALiBi(num_heads=8, variant="key_from_start")
        assert_type(client.get(bloom, query_length=4, key_length=4), attnbias.KeyRow)
        assert_type(
            client.get(bloom, query_length=4, key_length=4, form="key_row"), attnbias.KeyRow
        )
        assert_type(client.get(bloom, query_length=4, key_length=4, form="dense"), Array)

    def lists_may_have_no_compact_form(client: attnbias.Client) -> None:
        alibi = attnbias.ALiBi(num_heads=8)
        listed = client.get(alibi, query_positions=[1, 5], key_positions=[7, 2])
        assert_type(listed, attnbias.Toeplitz | Array)
        dense = client.get(alibi, query_positions=[1], key_positions=[2], form="dense")
        assert_type(dense, Array)

    def a_grid_may_be_any_table(client: attnbias.Client) -> None:
        encoding = attnbias.Sinusoidal(dim=8, axes=[attnbias.Axis()] * 2)
        assert_type(client.get(encoding, grid=[2, 3], grid_offset=[0, 1]), Any)
        assert_type(client.get(encoding, grid=[2, 3], form="dense"), Any)

    def out_is_returned(client: attnbias.Client) -> None:
        raw = bytearray(96)
        assert_type(client.get(attnbias.Sinusoidal(dim=6), positions=4, out=raw), bytearray)

    def an_encoding_of_unknown_kind(client: attnbias.Client, table: attnbias.TableInfo) -> None:
        assert table.encoding is not None
        assert_type(client.get(table.encoding, query_length=4, key_length=4), Any)

    def words_are_of_either_case(client: attnbias.Client) -> None:
        attnbias.Rotary(head_dim=4, layout="interleaved")
        attnbias.Rotary(head_dim=4, layout="interleaving")  # type: ignore[call-overload]
        attnbias.Rotary(head_dim=4, ntk=attnbias.Linear(2.0))  # type: ignore[call-overload]
        client.get(attnbias.ALiBi(num_heads=1), query_length=4, key_length=4, form="dens")  # type: ignore[call-overload]

    def a_file_holds_what_get_gave() -> None:
        loaded = attnbias.load("bias.safetensors")
        assert_type(
            loaded, Array | attnbias.Structure | attnbias.RotaryTables | attnbias.XposTables
        )
        _ = loaded.diagonals  # type: ignore[union-attr]
        if isinstance(loaded, attnbias.Structure):
            assert_type(loaded.dense(), Array)

    def an_index_gives_the_kind_or_an_array(bias: attnbias.Toeplitz) -> None:
        assert_type(bias[0], attnbias.Toeplitz | Array)
        assert_type(bias[..., :3], attnbias.Toeplitz | Array)
        _ = bias[0].nothing  # type: ignore[union-attr]

    def an_error_has_a_code_of_grpc(error: attnbias.Error) -> None:
        assert_type(error.code, grpc.StatusCode)

    def parts_are_of_the_same_kind(bias: attnbias.Toeplitz) -> None:
        assert_type(bias.window(queries=1), attnbias.Toeplitz)
        assert_type(bias.dense(), Array)

    def layouts_are_known(bias: attnbias.Toeplitz) -> None:
        bias.shard(0, 2, queries="zig")  # type: ignore[arg-type]

    def on_many_devices_all_is_dense(
        client: attnbias.Client, mesh: DeviceMesh, sharding: jax.sharding.Sharding
    ) -> None:
        alibi = attnbias.ALiBi(num_heads=8)
        answer = client.get(
            alibi, query_length=4, key_length=4, device_mesh=mesh, placements=[Shard(0)]
        )
        assert_type(answer, DTensor)
        assert_type(client.get(alibi, query_length=4, key_length=4, sharding=sharding), jax.Array)
        assert_type(client.get(attnbias.Rotary(head_dim=4), positions=4, sharding=sharding), Any)
        client.get(alibi, query_length=4, key_length=4, device_mesh=mesh)  # type: ignore[call-overload]
