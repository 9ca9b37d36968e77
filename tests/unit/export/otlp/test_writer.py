"""OTLP profiles: the tables, their first entries, and what is the same each time."""

from __future__ import annotations

from dataclasses import replace

from ebpfprof.export import otlp
from ebpfprof.export.otlp.schema import message_class
from ebpfprof.export.proto_messages import ProtoMessage
from ebpfprof.profile.model import Frame, Label, Location, Mapping, Profile, Sample
from ebpfprof.profile.wait_histogram import SCALE, WaitHistogram
from tests.unit.export.small_profile import LIBC, MAIN, SMALL, UNKNOWN, WORK, field, numbers, packed
from tests.unit.varints import varint

SOURCE = otlp.ProfileSource(
    {"service.name": "shop", "service.version": ""}, "block", "1.2", "an id"
)


def request_of(profile: Profile) -> ProtoMessage:
    data = otlp.encode(profile, SOURCE)
    assert data == otlp.encode(profile, SOURCE)
    return message_class("ExportProfilesServiceRequest").FromString(data)


def test_fields_have_the_numbers_of_the_specification() -> None:
    """Written down from the .proto files with an encoder of its own."""
    profile = replace(SMALL, samples=(Sample((WORK,), (2, 300)),), comments=())
    request = request_of(profile)
    first, second = (
        each.profile_id for each in request.resource_profiles[0].scope_profiles[0].profiles
    )
    assert len(first) == len(second) == 16
    assert first != second
    strings = ["main.work", "/src/main.go", "/srv/api", "process.executable.build_id.gnu"]
    strings += ["profile.frame.type", "contentions", "count", "delay", "nanoseconds"]

    def of(number: int, value: int, kind: tuple[int, int], identity: bytes) -> bytes:
        return b"".join(
            [
                field(1, numbers(f1=kind[0], f2=kind[1])),
                field(2, numbers(f1=1) + field(4, packed(value))),
                varint(3 << 3 | 1) + SMALL.time_ns.to_bytes(8, "little"),
                field(4, SMALL.duration_ns),
                field(5, numbers(f1=number, f2=number + 1)),
                field(6, 1),
                field(7, identity),
            ]
        )

    texts = list(request.dictionary.string_table)
    assert sorted(each.decode() for each in texts) == sorted(["", *strings])
    at = {text.decode(): index for index, text in enumerate(texts)}
    contentions, delay = at["contentions"], at["delay"]
    value = field(1, "shop")
    expected = b"".join(
        [
            field(
                1,
                field(1, field(1, field(1, "service.name") + field(2, value)))
                + field(
                    2,
                    field(1, field(1, "block") + field(2, "1.2"))
                    + field(2, of(contentions, 2, (contentions, at["count"]), first))
                    + field(2, of(contentions, 300, (delay, at["nanoseconds"]), second)),
                ),
            ),
            field(
                2,
                b"".join(
                    [
                        field(1, b""),
                        field(
                            1,
                            numbers(f1=MAIN.start, f2=MAIN.limit, f3=MAIN.offset, f4=at["/srv/api"])
                            + field(5, packed(1)),
                        ),
                        field(2, b""),
                        field(
                            2,
                            numbers(f1=1, f2=WORK.address)
                            + field(3, numbers(f1=1, f2=12))
                            + field(4, packed(2)),
                        ),
                        field(3, b""),
                        field(
                            3,
                            numbers(
                                f1=at["main.work"],
                                f2=at["main.work"],
                                f3=at["/src/main.go"],
                                f4=10,
                            ),
                        ),
                        field(4, b""),
                        *(field(5, text) for text in texts),
                        field(6, b""),
                        field(
                            6,
                            numbers(f1=at["process.executable.build_id.gnu"])
                            + field(2, field(1, "c0ffee")),
                        ),
                        field(6, numbers(f1=at["profile.frame.type"]) + field(2, field(1, "go"))),
                        field(7, b""),
                        field(7, field(1, packed(1))),
                    ]
                ),
            ),
        ]
    )
    assert otlp.encode(profile, SOURCE) == expected


def test_labels_comments_and_empty_stacks() -> None:
    labels = (Label("route", "/pay"), Label("bytes", 0, "bytes"), Label("n", -5, "items"))
    odd = Location(0x401000, MAIN, (Frame("main.\udcff", "", 0),))
    samples = (Sample((odd, UNKNOWN), (1, 9), labels), Sample((), (1, 5)), Sample((odd,), (1, 1)))
    request = request_of(replace(SMALL, samples=samples))
    tables = request.dictionary
    texts = [each.decode() for each in tables.string_table]
    assert "main.\\udcff" in texts
    (profile, _) = request.resource_profiles[0].scope_profiles[0].profiles
    assert [
        len(tables.stack_table[sample.stack_index].location_indices) for sample in profile.samples
    ] == [2, 0, 1]
    found = [tables.attribute_table[index] for index in profile.samples[0].attribute_indices]
    assert [(texts[each.key_strindex], texts[each.unit_strindex]) for each in found] == [
        ("route", ""),
        ("bytes", "bytes"),
        ("n", "items"),
    ]
    assert found[0].value.string_value == b"/pay"
    assert [each.value.int_value for each in found[1:]] == [0, -5]
    assert all(each.value.HasField("int_value") for each in found[1:])
    (comment,) = profile.attribute_indices
    (text,) = tables.attribute_table[comment].value.array_value.values
    assert text.string_value == b"every event was recorded"
    assert LIBC.filename in texts


def test_frames_say_what_they_are_if_that_is_sure() -> None:
    kernel = Mapping(1 << 63, (1 << 63) + 100, 0, "[kernel.kallsyms]", "")
    places = (
        Location(1 << 63, kernel, (Frame("futex_wait", "", 0),)),
        Location(0x401000, MAIN, (Frame("x_cgo_call", "gcc_amd64.S", 1),)),
        WORK,
    )
    tables = request_of(replace(SMALL, samples=(Sample(places, (1, 9)),))).dictionary
    texts = [each.decode() for each in tables.string_table]
    found = []
    for location in list(tables.location_table)[1:]:
        attributes = [tables.attribute_table[index] for index in location.attribute_indices]
        found.append([(texts[a.key_strindex], a.value.string_value) for a in attributes])
    name = "profile.frame.type"
    assert found == [[(name, b"kernel")], [], [(name, b"go")]]


def test_lengths_of_waits_are_attributes_of_samples_where_files_have_them_as_labels() -> None:
    lengths = WaitHistogram.of([100, 100, 5000])
    profile = replace(SMALL, samples=(Sample((WORK,), (3, 5200), lengths=lengths),))
    (plain,) = request_of(profile).resource_profiles[0].scope_profiles[0].profiles[0].samples
    assert not plain.attribute_indices
    request = request_of(replace(profile, has_length_labels=True))
    tables = request.dictionary
    counts, delays = (
        {
            tables.attribute_table[sample.attribute_indices[0]].value.int_value: sample.values[0]
            for sample in each.samples
        }
        for each in request.resource_profiles[0].scope_profiles[0].profiles
    )
    assert counts == {int(SCALE.middle_ns(b)): n for b, n in lengths.rows()}
    assert sum(delays.values()) == 5200
    (attribute,) = (each for each in tables.attribute_table if each.value.int_value > 1000)
    assert tables.string_table[attribute.key_strindex] == b"wait"
    assert tables.string_table[attribute.unit_strindex] == b"nanoseconds"
