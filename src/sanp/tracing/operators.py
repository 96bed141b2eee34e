"""Sets of operators that treat zero channels alike, by their aten names without the underscore of in-place forms."""

from sanp.tracing.graph import WRITTEN

KEEP_ZERO = set(
    (
        "relu relu6 leaky_relu rrelu_with_noise prelu _prelu_kernel elu selu celu silu mish gelu hardswish tanh erf "
        "abs neg sign sqrt square sin sinh asin atan tan expm1 log1p floor ceil round trunc clone contiguous detach "
        "alias _to_copy lift_fresh dropout native_dropout hardshrink softshrink positive to "
        "sgn nan_to_num alpha_dropout feature_dropout"
    ).split()
)
"""The output has the shape of the input and is zero where the input is."""
MOVE = set(
    (
        "view _unsafe_view reshape permute transpose t expand slice select split split_with_sizes chunk unbind "
        "squeeze unsqueeze index_select index flip roll repeat cat stack pixel_shuffle pixel_unshuffle "
        "channel_shuffle narrow movedim swapaxes unsafe_split unsafe_chunk native_channel_shuffle flatten unflatten "
        "tile repeat_interleave expand_as view_as unfold slice_scatter select_scatter index_put index_copy"
    ).split()
)
"""The output consists of elements of the inputs in other places."""
POOL = set(
    (
        "max_pool2d_with_indices max_pool3d_with_indices max_pool1d max_pool2d max_pool3d max_pool1d_with_indices "
        "avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d _adaptive_avg_pool2d adaptive_avg_pool2d "
        "_adaptive_avg_pool3d adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d upsample_nearest1d "
        "upsample_nearest2d upsample_nearest3d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d "
        "upsample_linear1d _upsample_bilinear2d_aa _upsample_bicubic2d_aa _upsample_nearest_exact1d "
        "_upsample_nearest_exact2d _upsample_nearest_exact3d reflection_pad1d reflection_pad2d reflection_pad3d "
        "replication_pad1d replication_pad2d replication_pad3d grid_sampler_2d grid_sampler_3d max_unpool2d "
        "max_unpool3d fractional_max_pool2d"
    ).split()
)
"""Pooling, resizing and padding: each channel of a map is computed from the same channel, and zero if all of it is."""
REDUCE = set("mean sum amax amin nansum max min linalg_vector_norm norm std var".split())
"""Reductions along dimensions; ``max`` and ``min`` of two tensors are in here too."""
ALONG = set("topk sort gather cumsum cummax cummin".split())
"""An element of the output is computed from the elements of the input along one dimension."""
ATTENTION = set(
    (
        "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention "
        "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention _scaled_dot_product_attention_math"
    ).split()
)
"""Attention of queries, keys and values."""
MAKES_LIVE = set(
    (
        "convolution native_batch_norm _native_batch_norm_legit_no_training _native_batch_norm_legit batch_norm "
        "cudnn_batch_norm native_layer_norm native_group_norm sigmoid hardsigmoid softmax _softmax _log_softmax exp "
        "cos addmm baddbmm rsqrt reciprocal log softplus log_sigmoid_forward rsub var_mean ones_like "
        "new_ones full_like new_full empty_like new_empty rand_like randn_like eq ne lt le gt ge logical_not argmax "
        "argmin bitwise_not _safe_softmax mkldnn_rnn_layer _native_multi_head_attention "
        "_transformer_encoder_layer_fwd one_hot searchsorted bucketize"
    ).split()
)
"""The output need not be zero where the input is, so that a call without a rule is not reported as unknown."""

CAN_ZERO = set("mul constant_pad_nd cat stack zero zeros_like new_zeros fill copy index_put".split()) | {WRITTEN}
"""The output can have zero channels even if no input has any."""
