"""Samples for several users, of memory that can't be read at the end."""

from __future__ import annotations

from dataclasses import replace

from ebpfprof.goruntime.goroutines.parked import parked_goroutines
from ebpfprof.goruntime.process import GoTarget
from ebpfprof.goruntime.samples.sampler import GoroutineSampler
from ebpfprof.goruntime.samples.sampling_thread import SamplingRate, SamplingThread
from ebpfprof.goruntime.samples.shared_sampler import SharedSampler
from ebpfprof.goruntime.waits.standing import Threshold
from ebpfprof.process.memory import UnreadableMemory
from symbolizer.codeanalysis.globals import allgs_address
from tests.images.image import VERSIONS, image
from tests.images.pages import PAGE_SHIFT, ChangedBytes

VERSION = VERSIONS[-1]
RARELY = SamplingRate(1e-6, 1e-6)
"""The thread takes no sample while a test runs."""


class FadingMemory(ChangedBytes):
    """Memory of which the list of goroutines can't be read any more after fade()."""

    def __init__(self) -> None:
        super().__init__(image(VERSION).memory, {}, frozenset())

    def fade(self, go: GoTarget) -> None:
        self._gone = frozenset({allgs_address(go.binary) + go.load_bias >> PAGE_SHIFT})


def shared(go: GoTarget) -> SharedSampler:
    return SharedSampler(go, rate=RARELY, has_labels=False, thread=SamplingThread())


def test_a_last_sample_that_fails_is_reported() -> None:
    memory = FadingMemory()
    with image(VERSION).opened(memory) as go, shared(go) as sampler:
        sampler.start()
        sampler.start()
        memory.fade(go)
        sampler.stop()
        before = sampler.failure
        assert before is None  # of another user's samples
        sampler.stop()
        assert isinstance(sampler.failure, UnreadableMemory)
        assert sampler.totals().states


def test_goroutines_stand_that_wait_as_at_the_samples_before() -> None:
    with image(VERSION).opened() as go:
        sampler = GoroutineSampler(go, has_labels=False)
        sampler.sample()
        sampler.sample()
        first, *others = parked_goroutines(go).goroutines
        moved = replace(first, sequence=first.sequence + 1 & 0xFF)
        standing = sampler.standing([moved, *others], Threshold(2))
    assert others
    assert standing.keys() == {each.address for each in others}
