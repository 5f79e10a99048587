"""Patterns of the stock of regenerated text; `$field` is filled from the word lists of `inventory`.

`$noun1` is the same noun everywhere in its piece, `$noun` a new one each time.
"""

from windtunnel.traces.model import TextKind

CODE = (
    """def $func1($noun1: $type, $noun2: $type = None) -> $type:
    if $noun2 is None:
        $noun2 = $func($noun1)
    return $noun2""",
    """class $cls:
    def __init__(self, $noun1: $type, $noun2: $type) -> None:
        self.$noun1 = $noun1
        self._$noun2 = $noun2""",
    """for $noun1 in $nouns:
    if not $noun1.$adj:
        continue
    $snake.append($noun1.$noun)""",
    """async def $func(self, $noun1: str) -> $cls:
    async with self.$noun.$verb($noun1) as $noun2:
        return await $noun2.$verb()""",
    """try:
    $noun1 = $func($snake)
except $err as error:
    raise $cls("$adj $noun: $adj $noun") from error""",
    """$const = $big
$const = "$adj $noun"
$const = ("$noun", "$noun", "$noun")""",
    """def test_$func() -> None:
    $noun1 = $cls($noun=$num, $noun="$word")
    assert $noun1.$verb() == $num
    assert $noun1.$noun is not None""",
    """from $noun1.$noun import $cls, $func
import $noun""",
    """with open($noun1 / "$noun.$noun", encoding="utf-8") as handle:
    $noun2 = handle.read()
    print(f"$verb $noun {len($noun2)}")""",
    """return [$noun1 for $noun1 in self.$nouns if $noun1.$noun == $noun]""",
    """@$verb.$noun("$noun-$noun")
def $func($noun: $cls) -> None:
    # $adj $noun first, then the $adj one
    $func($noun, $noun=$digit)""",
    """export function $camel($noun1: $cls, $noun2 = $num): $cls {
  const $noun3 = $noun1.$camel($noun2);
  return $noun3 ?? new $cls();
}""",
    """export const $camel = async ($noun1: string): Promise<$cls> => {
  const $noun2 = await fetch(`/$noun/${$noun1}`);
  return $noun2.json();
};""",
    """interface $cls {
  $noun: string;
  $snake?: number;
  readonly $nouns: $cls[];
}""",
    """func (s *$cls) $camel(ctx context.Context, $noun1 int) error {
	if $noun1 < $digit {
		return fmt.Errorf("$adj $noun: %d", $noun1)
	}
	return nil
}""",
    """pub fn $func($noun1: &str) -> Result<$cls, $cls> {
    let $noun2 = $noun1.trim();
    $cls::new($noun2)
}""",
    """if ($noun1.length > $num) {
  $noun2.push($noun1.slice(0, $num));
} else {
  $camel($noun1);
}""",
    """SELECT $noun, $snake, count(*) FROM $nouns
WHERE $noun = '$word' AND $snake > $num
GROUP BY $noun ORDER BY $snake LIMIT $num;""",
    """logger.info("$verb $noun %s with %d $nouns", self.$noun, len($nouns))""",
    """# $verb the $adj $noun before the $noun is $adj""",
    """$noun1 = {
    "$noun": $num,
    "$snake": [$digit, $digit, $digit],
    "$noun": $func("$word"),
}""",
    """set -e
for $noun1 in $file $file; do
  echo "$verb $noun"
done""",
    """- $snake = $func($noun)
+ $snake = $func($noun, $noun=$num)""",
    """@@ -$num,$digit +$num,$digit @@ def $func(self):
+    if self.$noun is None:
+        return $num
-    return self.$noun""",
)

PROSE = (
    "I will $verb the $noun before the $noun is read, because the $adj $noun depends on it.",
    "The $adj $noun comes from $file, where the $noun is never checked against the $noun.",
    "Now let me look at how $func handles an $adj $noun and whether the tests cover it.",
    "- $verb the $noun and $verb each $noun with its $adj $noun",
    "- The $noun in $file keeps the $adj $noun after a $noun has been closed.",
    "All $num tests pass now. The $noun was $adj because the $noun used the $adj $noun.",
    "When a $noun is $adj, the $noun must $verb it once and then $verb the $adj $noun.",
    "Please $verb the $noun so that every $adj $noun is kept, and do not change the $noun.",
    "This means the $noun is built twice: once for the $noun, and again when the $noun is ready.",
    "The failing test expects $num $nouns, but the $noun returns $num since the last $noun.",
    "Good, the $noun is there. Next I need to $verb the $noun in $file as well.",
    "You should $verb the $adj $noun only if the user asked for it; otherwise leave the $noun as it is.",
    "To use this tool, give the $noun of the $noun and, if needed, a $adj $noun.",
    "The result holds one $noun for each $noun, in the order in which the $nouns were found.",
    "# $verb the $noun",
    "Never $verb a $noun that was not read first, and keep every $noun as small as it can be.",
    "The simplest fix is to $verb the $noun at the start of $func and to $verb the $noun there.",
    "I found the cause: $func is called with the $adj $noun, so its $noun is always $adj.",
    "If the $noun is longer than $num lines, read it in parts and $verb the $noun first.",
    "What remains is the $noun: it still has a $adj $noun, and its $noun says nothing about it.",
    "Let me run the tests for the $noun again, this time with the $adj $noun in place.",
    "It took $num seconds to $verb the $noun, most of it in the $adj $noun of the $noun.",
    "Before: $num $nouns and a $adj $noun. After: $num $nouns, each with its own $noun.",
    "The user wants the $noun to $verb without a $noun, which the $adj $noun cannot do yet.",
    "Both $nouns share the same $noun, so a change to one $noun is seen by the other.",
    "1. Read $file and $verb the $noun.",
    "2. $verb the $adj $noun, then run the tests of the $noun.",
)

JSON = (
    """{"$noun": "$word", "$noun": $num, "$snake": $bool}""",
    """{"file_path": "/home/user/$noun/$file", "offset": $num, "limit": $big}""",
    """{"command": "python -m pytest $file -q", "timeout": $big, "description": "$verb the $adj $noun"}""",
    """{"pattern": "$func", "path": "$file", "output_mode": "content", "-n": $bool}""",
    """{"id": "$hex", "type": "$noun", "status": "$adj", "$nouns": ["$noun", "$noun", "$noun"]}""",
    """{
  "name": "$snake",
  "version": "$digit.$num.$digit",
  "$noun": {
    "$noun": "$word",
    "$snake": $big
  }
}""",
    """{"file_path": "$file", "old_string": "$noun = $func($noun)", "new_string": "$noun = $func($noun, $num)"}""",
    """{
  "$nouns": [
    {"$noun": $num, "$noun": "$adj"},
    {"$noun": $num, "$noun": "$adj"}
  ],
  "total": $digit
}""",
    """{"type": "object", "properties": {"$noun1": {"type": "string", "description": "The $noun to $verb"}},
 "required": ["$noun1"]}""",
    """{"$noun": null, "$noun": [$num, $num, $big], "$snake": {"$noun": $frac}}""",
    """{"line": $num, "column": $digit, "severity": "$noun", "message": "$adj $noun in the $noun of $func"}""",
    """{"name": "$camel", "description": "$verb a $noun and return its $noun", "parameters": {"$noun": "$type"}}""",
    """[{"role": "$noun", "content": "$verb the $noun"}, {"role": "$noun", "content": "$adj $noun"}]""",
    """{"$noun": "$hex", "created": "$day", "updated": "$day", "$noun": $frac, "$snake": $bool}""",
)

LOG = (
    """$day $clock $level $noun.$noun: $verb $noun in $frac s""",
    """[$clock] $level  $noun[$digit]: $adj $noun, $num of $big $nouns done""",
    """tests/test_$noun.py::test_$func PASSED                              [ $pct%]""",
    """tests/$noun/test_$noun.py::test_$func FAILED                        [ $pct%]""",
    """$file:$num:    $snake = $func($noun)""",
    """$file:$num:$digit: error: $adj $noun has no $noun  [$noun-$noun]""",
    """-rw-r--r-- 1 user user $big Mar $num $num:$num $noun.$noun""",
    """Traceback (most recent call last):
  File "/home/user/$noun/$file", line $num, in $func
    $noun1 = self.$func($noun)
$err: $adj $noun: '$word'""",
    """E       assert $num == $num
E        +  where $num = $func($noun)""",
    """=================== $digit failed, $num passed in $frac s ===================""",
    """$hex $verb $adj $noun for the $noun""",
    """M  $file
M  $file
?? $file""",
    """$file | $num +++++---
 $digit files changed, $num insertions, $digit deletions""",
    """GET /$noun/$noun/$big HTTP/1.1 200 $big $num ms""",
    """WARNING: $noun $noun is $adj, using the $adj $noun instead""",
    """$num	def $func(self, $noun):
$num	    $noun = self.$noun.$verb($noun)
$num	    return $noun""",
    """Collecting $noun-$noun==$digit.$num.$digit
  Downloading $noun-$digit.$num-py3-none-any.whl ($num kB)""",
    """$ $verb --$noun=$num --$noun $file
$verb: $adj $noun, $num $nouns in $frac s""",
    """drwxr-xr-x $digit user user $big Apr $num $num:$num $noun""",
    """$clock  $noun=$noun $noun=$big $noun=$adj status=$digit took=$frac""",
)

PATTERNS: dict[TextKind, tuple[str, ...]] = {"code": CODE, "prose": PROSE, "json": JSON, "log": LOG}
