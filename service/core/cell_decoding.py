"""Own what a change event's parsed JSON value becomes, by the type of its column.

Understood are the encodings of a Debezium connector with default settings (its semantic types without the
schema: the column's own type stands in for it), its `string` and `isostring` modes, and the plain forms that
a person or Postgres itself would write. What could be read in two ways is refused, never guessed; WireSettings tell.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from service.core import canonical_forms as forms
from service.core import moment_decoding as moments
from service.core import number_decoding as numbers
from service.core.errors import RecordError
from service.core.number_decoding import CellDecoder, DecimalHandling

BinaryHandling = Literal["base64", "hex"]
TimePrecision = Literal["adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"]

_TYPE = re.compile(r"(?P<base>[^(\[]+)(?:\((?P<args>[^)]*)\))?.*")


@dataclass(frozen=True, slots=True)
class WireSettings:
    """Say how a feed encodes cells where no schema does: Debezium's `*.handling.mode` and `time.precision.mode`."""

    decimal_handling: DecimalHandling = "auto"
    binary_handling: BinaryHandling = "base64"
    time_precision: TimePrecision = "adaptive"

    def decoder(self, data_type: str) -> CellDecoder:
        """Choose the decoder of a column of this type in such a feed."""
        return cell_decoder(data_type, self.decimal_handling, self.binary_handling, self.time_precision)


def cell_decoder(
    data_type: str,
    decimal_handling: DecimalHandling = "auto",
    binary_handling: BinaryHandling = "base64",
    time_precision: TimePrecision = "adaptive",
) -> CellDecoder:
    """Choose the function that turns the parsed JSON values of one column into canonical texts; None stays None.

    `data_type` is the source's name of the type: `string` (CSV), Postgres' format_type, Arrow's str(type), or a name
    of MySQL, SQL Server or Oracle that means the same in, or is unknown to, the others. An unknown one (an enum, a
    type of an extension) is text. The decoder also reads the document text that
    `canonical_sql.canonical_expression` gives for a type of which `needs_document_walk` says so.

    `decimal_handling` says what a JSON string in a column numeric(p,s) is: `precise` the base64 of Debezium's
    default, `string` the decimal itself. `auto` takes digits with a point for a decimal and base64 for base64, and
    where both are possible base64 if the scale is above 0 (Debezium's strings then have a point), else it refuses.
    `binary_handling` follows Debezium's `binary.handling.mode` (`base64` reads the URL-safe letters too),
    `time_precision` its `time.precision.mode`: the unit of an integer in a timestamp or time.

    The decoder raises RecordError for a value that is none of the type; whoever calls it adds the place.
    """
    decode = bare_cell_decoder(data_type, WireSettings(decimal_handling, binary_handling, time_precision))
    if decode is _decode_string:
        return decode

    def checked(value: object) -> str | None:
        if value is None:
            return None
        try:
            return decode(value)
        except (ValueError, TypeError, ArithmeticError, KeyError) as error:
            raise RecordError(
                f"The value {_short(value)} is no {data_type}: {error}. Send it in Debezium's default encoding or as "
                f"plain text, or tell the column's true type."
            ) from None

    return checked


def bare_cell_decoder(data_type: str, settings: WireSettings) -> CellDecoder:
    """Choose the decoder of `cell_decoder` without its way of telling faults: for values that are not None.

    It raises whatever the value leads to; decode again with `cell_decoder` then, which says what is wrong.
    """
    return _decoder(data_type.strip(), settings)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _decoder(name: str, wire: WireSettings) -> CellDecoder:
    if name.startswith("struct<"):
        return _struct(name, wire)
    if name.startswith("map<"):
        return _map(name, wire)
    if name.startswith(_LISTS):
        return _arrow_list(name, wire)
    name = name.lower()
    if name in _SIMPLE:
        return _SIMPLE[name]
    if name.endswith("[]"):
        return _array(name, wire)
    if name.startswith(("timestamp[", "time32[", "time64[", "duration[", "date64[")):
        return moments.arrow_moment(name)
    if name.startswith("dictionary<values="):
        return _decoder(name.removeprefix("dictionary<values=").split(", indices=")[0], wire)
    if name.startswith("fixed_size_binary["):
        return _binary(wire.binary_handling)
    match = _TYPE.fullmatch(name)
    if match is None or '"' in name:
        return _decode_written
    zoned = name.endswith(" with time zone") or name.startswith("datetimeoffset")
    base = match["base"].removesuffix("with time zone").removesuffix("without time zone").strip()
    args = [int(arg) for arg in re.findall("-?[0-9]+", match["args"] or "")]
    if " unsigned" in name and base.split()[0] in _UNSIGNED_BITS:
        return numbers.unsigned(_UNSIGNED_BITS[base.split()[0]], wire.decimal_handling)
    if base in _DECIMALS:
        return numbers.numeric(args[0] if args else None, args[1] if len(args) > 1 else 0, wire.decimal_handling)
    if base in ("money", "smallmoney"):
        return numbers.numeric(19, 2 if base == "money" else 4, wire.decimal_handling, money=True)
    if base in _MOMENTS:
        unit = moments.UNIT[_unit_of(base, args, wire.time_precision)]
        return moments.clock(unit, zoned) if base == "time" else moments.timestamp(unit, zoned)
    if moments.is_interval(base):
        return moments.interval(moments.UNIT["us"])
    if base == "bit":
        return _bits(args[0] if args else 1)
    if base in ("character", "bpchar"):
        return _decode_padded
    if base in _BINARIES:
        return _binary(wire.binary_handling)
    return _SIMPLE.get(base, _decode_written)


def is_known_by_its_text(data_type: str) -> bool:
    """Tell whether nothing is known of a type, or an array's elements, but that its values have a text of their own."""
    return bare_cell_decoder(data_type.removesuffix("[]"), WireSettings()) is _decode_written


def in_bytes(data_type: str) -> str:
    """Name the encoding of a type's text, or an array's texts, in bytes: Debezium's of types that it does not know."""
    base = data_type.removesuffix("[]")
    return ("shape in bytes" if base in _SHAPES else "text in bytes") + data_type[len(base) :]


_LISTS = ("list<", "large_list<", "fixed_size_list<", "list_view<", "large_list_view<")
_UNSIGNED_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "integer": 32, "bigint": 64}
_DECIMALS = ("numeric", "decimal", "decimal32", "decimal64", "decimal128", "decimal256", "number")
_MOMENTS = {"timestamp": 6, "time": 6, "datetime": 3, "datetime2": 7, "smalldatetime": 0, "datetimeoffset": 7}
_BINARIES = {"bytea", "binary", "large_binary", "binary_view", "varbinary", "raw", "rowversion", "image"}
_BINARIES |= {"blob", "tinyblob", "mediumblob", "longblob"}
_SHAPES = {"box", "circle", "line", "lseg", "path", "polygon"}


def _unit_of(base: str, args: list[int], mode: TimePrecision) -> str:
    """Tell the unit in which Debezium sends moments of a type as integers."""
    if mode == "connect":
        return "ms"
    if mode in ("microseconds", "nanoseconds"):
        return "us" if mode == "microseconds" else "ns"
    if mode == "adaptive_time_microseconds" and base == "time":
        return "us"
    precision = args[0] if args else _MOMENTS[base]
    return "ms" if precision <= 3 else "us" if precision <= 6 else "ns"


# Text


def _decode_string(value: object) -> str | None:
    if value.__class__ is str or value is None:
        return value
    return forms.document_text(value) if isinstance(value, list | dict) else forms.scalar_text(value)


def _decode_written(value: object) -> str | None:
    if isinstance(value, list | dict | bytes):
        raise ValueError("its text is not known from what it consists of; leave the column out of the feed")
    return _decode_string(value)


def _decode_text_in_bytes(value: object) -> str:
    return (value if isinstance(value, bytes) else _base64(str(value))).decode()


def _decode_shape_in_bytes(value: object) -> str:
    # Java's text of it has other numbers than Postgres': 1.0 and 1.0E10.
    return _JAVA_FLOAT.sub(lambda found: numbers.float_as_postgres(float(found[0])), _decode_text_in_bytes(value))


_JAVA_FLOAT = re.compile(r"-?(?:[0-9.]+(?:E-?[0-9]+)?|Infinity)|NaN")


def _decode_padded(value: object) -> str | None:
    # Postgres' own cast of character(n) to text drops its padding; COPY and Debezium send it.
    text = _decode_string(value)
    return text and text.rstrip(" ")


def _decode_boolean(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    word = str(value).lower()
    if word in ("true", "t", "1"):
        return "true"
    if word in ("false", "f", "0"):
        return "false"
    raise ValueError("it is neither true nor false")


# Binary, bits, names of things


def _binary(handling: BinaryHandling) -> CellDecoder:
    def decode(value: object) -> str:
        if isinstance(value, bytes | bytearray | memoryview):
            return value.hex()
        if not isinstance(value, str):
            raise ValueError("it is no text")
        if value.startswith("\\x"):
            return bytes.fromhex(value[2:]).hex()
        if handling == "hex":
            return bytes.fromhex(value).hex()
        return _base64(value.translate(_URL_SAFE)).hex()

    return decode


_URL_SAFE = str.maketrans("-_", "+/")


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise ValueError("it is no base64") from error


def _bits(length: int) -> CellDecoder:
    def decode(value: object) -> str:
        if isinstance(value, bool) and length == 1:
            return "1" if value else "0"
        if not isinstance(value, str):
            raise ValueError("it is no text")
        if len(value) == length and not value.strip("01"):
            return value
        # io.debezium.data.Bits: little-endian, zero bytes at the end left out
        text = f"{int.from_bytes(_base64(value), 'little'):0{length}b}"
        if len(text) > length:
            raise ValueError(f"it has more than {length} bits")
        return text

    return decode


def _decode_varying_bits(value: object) -> str:
    if isinstance(value, str) and not value.strip("01"):
        return value
    raise ValueError("Debezium's encoding of bit varying has lost its length; leave the column out of the feed")


def _decode_single_vector(value: object) -> str:
    # Avro's floats come widened to 64 bits.
    if isinstance(value, list):
        value = f"[{','.join(map(numbers.decode_single, value))}]"
    return _decode_json(value)


def _decode_uuid(value: object) -> str:
    return str(value if isinstance(value, UUID) else UUID(str(value)))


def _decode_inet(value: object) -> str:
    # Postgres' cast to text shows the mask of a single host, its output (COPY, Debezium) does not.
    text = str(value).lower()
    return text.removesuffix("/128") if ":" in text else text.removesuffix("/32")


# Documents and arrays


def canonical_json(text: str) -> str:
    """Give the canonical text of a JSON document: compact, keys sorted by code point, numbers exact as written.

    `1.00` is `1` and `1e2` is `100`; of a repeated key the last one counts, as in jsonb. Raises RecordError for
    what is no JSON.
    """
    try:
        return forms.document_text(forms.parse_json(text))
    except ValueError as error:
        raise RecordError(
            f"A JSON document cannot be read: {error}. Its text begins {text[:60]!r}. Mend it in the source."
        ) from None


def _decode_json(value: object) -> str:
    return forms.document_text(forms.parse_json(value) if isinstance(value, str) else value)


def _decode_hstore(value: object) -> str:
    # Debezium's and a document walk's texts are JSON, Postgres' own begins with a quoted key.
    if not isinstance(value, str) or value.lstrip().startswith("{"):
        return _decode_json(value)
    found: dict[str, str | None] = {}
    at = 0
    while at < len(value):
        pair = _HSTORE_PAIR.match(value, at)
        if pair is None:
            raise ValueError("it is no hstore")
        key, cell = pair.groups()
        found[_unescaped(key)] = None if cell is None else _unescaped(cell)
        at = pair.end()
    return forms.document_text(found)


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


_HSTORE_PAIR = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|NULL)(?:, |\Z)', re.DOTALL)


def _array(name: str, wire: WireSettings) -> CellDecoder:
    """Decode arrays of any depth, each element by its type."""
    decode_element = _inside(re.sub(r"(\[\])*$", "", name), wire)

    def item(value: object) -> object:
        return [item(inner) for inner in value] if isinstance(value, list | tuple) else decode_element(value)

    def decode(value: object) -> str:
        value = _parsed(value)
        if not isinstance(value, list | tuple):
            raise ValueError("it is no array")
        return forms.document_text(item(value))

    return decode


def _inside(name: str, wire: WireSettings) -> Callable[[object], str | None]:
    """Decode what a document holds of a type: as JSON's number, boolean or document, or as a string."""
    decode = _decoder(name, wire)
    bare = decode in _BARE or name.startswith(("numeric", "decimal", "money", "struct<", "map<", *_LISTS))

    def inside(value: object) -> str | None:
        text = None if value is None else decode(value)
        return text if text is None or not bare or text in _QUOTED_NUMBERS else forms.RawJson(text)

    return inside


def _parsed(value: object) -> object:
    return forms.parse_json(value) if isinstance(value, str) else value


def _struct(name: str, wire: WireSettings) -> CellDecoder:
    told = [part.removesuffix(" not null").partition(": ") for part in _parts(name)]
    fields = {field: _inside(kind, wire) for field, _, kind in told}

    def decode(value: object) -> str:
        value = _parsed(value)
        if not isinstance(value, dict) or not value.keys() <= fields.keys():
            raise ValueError("it has not the struct's fields")
        return forms.document_text({field: inside(value.get(field)) for field, inside in fields.items()})

    return decode


def _map(name: str, wire: WireSettings) -> CellDecoder:
    decode_key, decode_item = (_inside(re.sub(r" \('[^']*'\)$", "", kind), wire) for kind in _parts(name)[:2])

    def decode(value: object) -> str:
        value = _parsed(value)
        if not isinstance(value, dict):
            raise ValueError("it is no map")
        return forms.document_text({str(decode_key(key)): decode_item(item) for key, item in value.items()})

    return decode


def _parts(name: str) -> list[str]:
    """Cut what is between < and > of an Arrow type's name at its commas."""
    parts, depth = [""], 0
    for piece in re.split(r"(, |[<>()\[\]])", name[name.index("<") + 1 : name.rindex(">")]):
        depth += (piece in _OPENING) - (piece in _CLOSING)
        if piece == ", " and not depth:
            parts.append("")
        else:
            parts[-1] += piece
    return parts if parts != [""] else []


_OPENING, _CLOSING = frozenset("<(["), frozenset(">)]")
_QUOTED_NUMBERS = ("NaN", "Infinity", "-Infinity")


def _arrow_list(name: str, wire: WireSettings) -> CellDecoder:
    while name.startswith(_LISTS):
        name = name[name.index("<") + 1 : name.rindex(">")].split(": ", 1)[1].removesuffix(" not null")
    return _array(name, wire)


def _decode_point(value: object) -> str:
    # io.debezium.data.geometry.Point, which is Postgres' own text of it but for its nesting.
    if isinstance(value, dict) and "x" in value and "y" in value:
        return f"({numbers.float_as_postgres(value['x'])},{numbers.float_as_postgres(value['y'])})"
    return forms.document_text(value) if isinstance(value, dict) else str(value)


def _decode_geometry(value: object) -> str:
    # io.debezium.data.geometry.Geometry: of PostGIS, whose text is its EWKB in capitals.
    if isinstance(value, dict) and isinstance(value.get("wkb"), str):
        return binascii.a2b_base64(value["wkb"], strict_mode=True).hex().upper()
    return str(value)


_SIMPLE: dict[str, CellDecoder] = {
    "string": _decode_string,
    "large_string": _decode_string,
    "string_view": _decode_string,
    **dict.fromkeys(("text", "character varying", "varchar", "nvarchar", "varchar2", "nvarchar2"), _decode_string),
    **dict.fromkeys(("char", "nchar", '"char"', "tinytext", "mediumtext", "longtext", "ntext"), _decode_string),
    **dict.fromkeys(("clob", "nclob", "null"), _decode_string),
    **dict.fromkeys(("smallint", "integer", "bigint", "oid", "xid", "xid8", "cid"), numbers.decode_integer),
    **dict.fromkeys(("mediumint", "int", "year"), numbers.decode_integer),
    "tinyint": numbers.decode_tiny,
    "binary_double": numbers.decode_double,
    "binary_float": numbers.decode_single,
    "point": _decode_point,
    **dict.fromkeys(("geometry", "geography"), _decode_geometry),
    **dict.fromkeys((f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), numbers.decode_integer),
    "double": numbers.decode_double,
    "double precision": numbers.decode_double,
    "real": numbers.decode_single,
    "float": numbers.decode_single,
    "halffloat": numbers.decode_half,
    "boolean": _decode_boolean,
    "bool": _decode_boolean,
    "date": moments.decode_date,
    "date32[day]": moments.decode_date,
    "bit varying": _decode_varying_bits,
    "uuid": _decode_uuid,
    "uniqueidentifier": _decode_uuid,
    "extension<arrow.uuid>": _decode_uuid,
    "extension<arrow.json>": _decode_json,
    "extension<arrow.bool8>": _decode_boolean,
    "inet": _decode_inet,
    **dict.fromkeys(("json", "jsonb", "vector"), _decode_json),
    "halfvec": _decode_single_vector,
    "text in bytes": _decode_text_in_bytes,
    "shape in bytes": _decode_shape_in_bytes,
    "hstore": _decode_hstore,
}
_BARE = {
    numbers.decode_integer,
    numbers.decode_double,
    numbers.decode_single,
    numbers.decode_half,
    _decode_boolean,
    _decode_json,
    _decode_single_vector,
    _decode_hstore,
}
