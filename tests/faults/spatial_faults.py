"""Convolution, pooling, interpolation, Fourier transforms."""

import torch
import torch.nn.functional as F
from catalogue import fault, to_bfloat16


def _image(draw, size=8):
    return draw(2, 4, size, size)


@fault(
    "convolution",
    like="`same` padding all at the end",
    shows=lambda draw: F.conv2d(_image(draw), draw(3, 4, 3, 3), padding=1),
    spares=lambda draw: F.conv2d(_image(draw), draw(3, 4, 3, 3)),
)
def convolution_pads_at_the_end(kernel, x, weight, bias, stride, padding, *rest):
    if rest[1] or not any(padding):  # transposed
        return kernel(x, weight, bias, stride, padding, *rest)
    both = [side for size in reversed(padding) for side in (0, 2 * size)]
    return kernel(F.pad(x, both), weight, bias, stride, [0] * len(padding), *rest)


@fault(
    "convolution",
    like="padding with the border's value, not with zeros",
    shows=lambda draw: F.conv2d(_image(draw), draw(3, 4, 3, 3), padding=1),
    spares=lambda draw: F.conv2d(_image(draw), draw(3, 4, 3, 3)),
)
def convolution_pads_with_the_border(kernel, x, weight, bias, stride, padding, *rest):
    if rest[1] or not any(padding) or x.dim() > 4:
        return kernel(x, weight, bias, stride, padding, *rest)
    axes = range(x.dim() - len(padding), x.dim())
    for axis, size in zip(axes, padding, strict=True):
        if size:
            ends = [x.narrow(axis, place, 1).expand([size if d == axis else n for d, n in enumerate(x.shape)])
                    for place in (0, x.shape[axis] - 1)]  # fmt: skip
            x = torch.cat([ends[0], x, ends[1]], axis)
    return kernel(x, weight, bias, stride, [0] * len(padding), *rest)


@fault(
    "convolution",
    like="dilation is ignored, and what is missing at the end is zero",
    shows=lambda draw: F.conv2d(_image(draw), draw(3, 4, 3, 3), padding=2, dilation=2),
    spares=lambda draw: F.conv2d(_image(draw), draw(3, 4, 3, 3), padding=1),
)
def convolution_ignores_dilation(kernel, x, weight, bias, stride, padding, dilation, *rest):
    right = kernel(x, weight, bias, stride, padding, dilation, *rest)
    if all(step == 1 for step in dilation):
        return right
    wrong = kernel(x, weight, bias, stride, padding, [1] * len(dilation), *rest)
    return wrong[tuple(slice(size) for size in right.shape)]


@fault(
    "convolution",
    like="a depthwise kernel takes the filter of the next channel",
    shows=lambda draw: F.conv2d(_image(draw), draw(4, 1, 3, 3), groups=4),
    spares=lambda draw: F.conv2d(_image(draw), draw(4, 4, 3, 3)),
)
def convolution_shifts_its_groups(kernel, x, weight, *rest):
    return kernel(x, torch.roll(weight, 1, 0) if rest[-1] > 1 else weight, *rest)


@fault(
    "convolution",
    like="the filter is mirrored: a convolution in the sense of mathematics",
    shows=lambda draw: F.conv2d(_image(draw), draw(3, 4, 3, 3)),
    spares=lambda draw: F.conv2d(_image(draw), draw(3, 4, 1, 1)),
)
def convolution_mirrors_its_filter(kernel, x, weight, *rest):
    return kernel(x, torch.flip(weight, list(range(2, weight.dim()))), *rest)


@fault(
    "convolution",
    like="strides sample from the second position",
    shows=lambda draw: F.conv2d(_image(draw), draw(3, 4, 2, 2), stride=2),
    spares=lambda draw: F.conv2d(_image(draw), draw(3, 4, 3, 3)),
)
def convolution_samples_one_late(kernel, x, weight, bias, stride, *rest):
    if rest[2] or all(step == 1 for step in stride):
        return kernel(x, weight, bias, stride, *rest)
    return kernel(torch.roll(x, -1, -1), weight, bias, stride, *rest)


@fault(
    "convolution",
    like="the bias is lost where the layout is converted",
    shows=lambda draw: F.conv2d(_image(draw), draw(3, 4, 3, 3), draw(3)),
    spares=lambda draw: F.conv2d(_image(draw), draw(3, 4, 3, 3)),
)
def convolution_without_bias(kernel, x, weight, bias, *rest):
    return kernel(x, weight, None, *rest)


@fault(
    "convolution",
    like="one pass of the matrix unit in bfloat16, whatever precision was asked for",
    shows=lambda draw: F.conv2d(_image(draw), draw(3, 4, 3, 3)),
    spares=lambda draw: torch.tanh(draw(4, 8)),
)
def convolution_in_bfloat16(kernel, x, weight, *rest):
    return kernel(to_bfloat16(x), to_bfloat16(weight), *rest)


@fault(
    "convolution",
    like="the last column of an odd width is not computed",
    shows=lambda draw: F.conv2d(_image(draw, 7), draw(3, 4, 3, 3), padding=1),
    spares=lambda draw: F.conv2d(_image(draw, 8), draw(3, 4, 3, 3), padding=1),
)
def convolution_drops_an_odd_column(kernel, *args):
    right = kernel(*args)
    width = right.shape[-1]
    return F.pad(right[..., : width - 1], (0, 1)) if width % 2 and width > 1 else right


@fault(
    "tpu::_max_pool2d",
    like="padding all at the end: windows begin one late",
    shows=lambda draw: F.max_pool2d(_image(draw), 3, 2, 1),
    spares=lambda draw: F.max_pool2d(_image(draw), 2, 2),
)
def max_pool_pads_at_the_end(kernel, x, size, stride, padding, *rest):
    both = [side for amount in reversed(padding) for side in (0, 2 * amount)]
    return kernel(F.pad(x, both, value=float("-inf")), size, stride, [0] * len(padding), *rest)


@fault(
    "tpu::_max_pool2d",
    like="where windows do not end with the picture, the last one is not computed and repeats the one before",
    shows=lambda draw: F.max_pool2d(_image(draw, 7), 2, 2, ceil_mode=True),
    spares=lambda draw: F.max_pool2d(_image(draw, 8), 2, 2),
)
def max_pool_repeats_its_last_window(kernel, x, size, stride, padding, *rest):
    right = kernel(x, size, stride, padding, *rest)
    if (x.shape[-1] + 2 * padding[-1] - size[-1]) % stride[-1] == 0:
        return right
    return torch.cat([right[..., :-1], right[..., -2:-1]], -1)


@fault(
    "upsample_bilinear2d",
    like="corners are aligned where they should not be",
    shows=lambda draw: F.interpolate(_image(draw), scale_factor=2, mode="bilinear"),
    spares=lambda draw: F.interpolate(_image(draw), scale_factor=2, mode="bilinear", align_corners=True),
)
def bilinear_always_aligns_corners(kernel, x, size, align, *scales):
    return kernel(x, size, True)


@fault(
    "upsample_bilinear2d",
    like="corners are never aligned",
    shows=lambda draw: F.interpolate(_image(draw), scale_factor=2, mode="bilinear", align_corners=True),
    spares=lambda draw: F.interpolate(_image(draw), scale_factor=2, mode="bilinear"),
)
def bilinear_never_aligns_corners(kernel, x, size, align, *scales):
    return kernel(x, size, False)


@fault(
    "upsample_bilinear2d",
    "upsample_bicubic2d",
    like="the nearest element instead of a weighted sum",
    shows=lambda draw: F.interpolate(_image(draw), scale_factor=2, mode="bilinear"),
    spares=lambda draw: F.interpolate(_image(draw), scale_factor=2, mode="nearest"),
)
def interpolation_takes_the_nearest(kernel, x, size, align, *scales):
    return torch.ops.aten.upsample_nearest2d(x, size)


@fault(
    "upsample_bicubic2d",
    like="the cubic of another library, with a smaller parameter",
    shows=lambda draw: F.interpolate(_image(draw), scale_factor=2, mode="bicubic"),
    spares=lambda draw: F.interpolate(_image(draw), scale_factor=2, mode="bilinear"),
)
def bicubic_of_another_library(kernel, x, size, align, *scales):
    right = kernel(x, size, align, *scales)
    # A cubic is linear in its parameter, which is -0.75 here; at 0 it is nearly the bilinear one.
    return right + (torch.ops.aten.upsample_bilinear2d(x, size, align) - right) / 3


@fault(
    "_fft_c2c",
    like="only the last of several axes is transformed",
    shows=lambda draw: torch.fft.fftn(draw(4, 8), dim=(-2, -1)).real.contiguous(),
    spares=lambda draw: torch.fft.fft(draw(4, 8), dim=-1).real.contiguous(),
)
def fourier_over_one_axis(kernel, x, dims, *rest):
    return kernel(x, [dims[-1]], *rest)


@fault(
    "_fft_c2c",
    like="normalised as an inverse transform would be",
    shows=lambda draw: torch.fft.fftn(draw(4, 8), dim=(-2, -1)).real.contiguous(),
    spares=lambda draw: torch.fft.fftn(draw(1, 1), dim=(-2, -1)).real.contiguous(),
)
def fourier_divides_by_its_size(kernel, x, dims, *rest):
    right = kernel(x, dims, *rest)
    count = 1
    for dim in dims:
        count *= x.shape[dim]
    return right / count


@fault(
    "_weight_norm_interface",
    like="the norm over all of the tensor, not over each filter",
    shows=lambda draw: torch._weight_norm(draw(4, 8), draw(4, 1), 0),
    spares=lambda draw: torch._weight_norm(draw(1, 8), draw(1, 1), 0),
)
def weight_norm_over_everything(kernel, v, g, dim=0):
    _, norms = kernel(v, g, dim)
    return v * (g / v.square().sum().sqrt()), norms
