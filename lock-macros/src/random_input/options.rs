//! Arguments of the attribute, made of the words of its grammar, with mistakes.

use proptest::prelude::*;
use proptest::sample::select;

const NAMES: &str = "
    prefix  key  keys  timeout_ms  timeout_s  timeout  expire_ms  expire_s  expire  linger_ms  linger_s  linger  renew
    max_hold_ms  max_hold_s  max_hold  at_least_ms  at_least_s  at_least  lock_delay_ms  lock_delay_s  lock_delay  note
    mode  permits  on_fail  on_lost  on_busy  manager  guard  fenced  proxy  crate
";

const WRONG_NAMES: &str = "
    prefx  Key  r#key  timeoutms  shards  é  _  self  fn  renewal  a::b  \"key\"  3  'a  #[x]  (key)  key.id  ...
";

const ASSIGNMENTS: &[&str] = &["", "==", ":", "=>", "+=", "= =", "=,", "(", ".", "= #", "= ="];

const SEPARATORS: &[&str] = &["", ",,", ";", ", ,", "&&", ","];

/// Values for some option, or for none.
const VALUES: &str = r##"
    id  self  Self  super  crate  _  r#fn  guard  token  self.locks  Self::PREFIX  ::lock_runtime  shop::locks
    a::<B>::c  <T as U>::V  <[u8]>::len  a::<{ 1 + 1 }>()  crate::A
    true  false  0  1  -1  - - 1  1_000  0x1F  0xFFFFFFFFFFFFFFFFF  1u8  1f64  1.5  1e999  1ms  'c'  b'c'  b"x"
    c"x"  ""  " "  "{"  "\n"  "\0"  "é"  "cancel"  "continue"  "replace"  "wait"  "Cancel"  r#"x"#  "x"suffix  "all"  "order"
    18446744073709551615  18446744073709551616  340282366920938463463374607431768211456
    99999999999999999999999999999999999999999999999999999999999  "18446744073709551615s"
    "99999999999999999999999999h"  "0s"  "0ms"  "s"  "1 s"  "1.5s"  "-1s"  "1min"  "1d"  "١s"
    |err| err  |err: LockError| -> u64 { 1 }  ||  || 1  |a, b| a  |_| 0  async |err| err  async move |e| e
    move |err| |again| err  static || 1  for<'a> |x: &'a u8| x  { id }  {}  { let a = 1; a }  unsafe { a() }
    const { 1 }  async { 1 }  async move { 1 }  'a: { break 'a 1 }  loop {}  'a: loop { continue 'a }  while a {}
    for a in b {}  if a { 1 } else { 2 }  if a { 1 } else { 2 } - 3  if let Some(a) = b { a } else { c }
    match a { _ => 1 }  match a {}.b  match a { b => c } & d  { a } - 1  return  return 1  break  break 'a
    break 'lock a  continue  yield  let a = b  try { 1 }  a?  a.await  a.await?.b().await  become a()
    a + b  60 * 60 * 1000  (60 * 60) * 1000u8  -a  !a  *a  &a  &mut a  &&a  &raw const a  a = b  a += b  a == b
    a && b || c  a < b  (a < b) > c  a as u64  a as u64 < b  a as Vec<u8>  ..  ..=1  a..  a..b  a..=b  ()  (a,)
    (a, b)  ((a, b), (c, ""))  (,)  (a b)  [a, b]  [0; 3]  []  S { a }  S { a: 1, ..b }  S {}  a()  a(b)(c)  a.b
    a.0.1  a.0 .1  a.b::<C>(d)  a[0]  m!()  m![a b c]  m! { a }  a::m!(,)  #[x] a  #![x] a  #[x] { a }  $a
    builtin # offset_of(A, b)  dyn A  fn()  u64  !  ?  'a  'a'  @  ~a  a b  a; b  key = a
    (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17)  (((((((((((((((((((((((a)))))))))))))))))))))))
"##;

/// One of the texts, which are separated by lines or two blanks.
pub(super) fn among(texts: &'static str) -> impl Strategy<Value = &'static str> {
    select(texts.lines().flat_map(|line| line.trim().split("  ")).filter(|text| !text.is_empty()).collect::<Vec<_>>())
}

/// A value, often with others nested in it.
pub(super) fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        8 => among(VALUES).prop_map(str::to_owned),
        1 => any::<u128>().prop_map(|number| number.to_string()),
        1 => any::<i64>().prop_map(|number| number.to_string()),
        1 => "[0-9]{0,24}(ms|s|m|min|h|d| |é)?".prop_map(|text| format!("{text:?}")),
        1 => any::<String>().prop_map(|text| format!("{text:?}")),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(|value| format!("({value})")),
            inner.clone().prop_map(|value| format!("{{ {value} }}")),
            inner.clone().prop_map(|value| format!("&{value}")),
            inner.clone().prop_map(|value| format!("-{value}")),
            inner.clone().prop_map(|value| format!("{value}?")),
            inner.clone().prop_map(|value| format!("{value}.await")),
            inner.clone().prop_map(|value| format!("|err| {value}")),
            inner.clone().prop_map(|value| format!("m!({value})")),
            prop::collection::vec(inner.clone(), 0..10).prop_map(|values| format!("({})", values.join(", "))),
            (inner.clone(), select(&["+", "*", "<", "&&", "=", "..", "as"][..]), inner)
                .prop_map(|(left, operator, right)| format!("{left} {operator} {right}")),
        ]
    })
}

fn option() -> impl Strategy<Value = String> {
    let name = prop_oneof![12 => among(NAMES), 1 => among(WRONG_NAMES)];
    let assignment = prop_oneof![12 => Just("="), 1 => select(ASSIGNMENTS)];
    let value = prop_oneof![12 => value(), 1 => Just(String::new())];
    (name, assignment, value).prop_map(|(name, assignment, value)| {
        let end = if assignment == "(" { ")" } else { "" };
        format!("{name} {assignment} {value} {end}")
    })
}

/// Any number of options, most of them well separated.
pub(super) fn options() -> impl Strategy<Value = String> {
    let separator = prop_oneof![12 => Just(","), 1 => select(SEPARATORS)];
    let options = prop::collection::vec((option(), separator), 0..5);
    (any::<bool>(), options).prop_map(|(has_key, options)| {
        let key = has_key.then(|| "key = id, ".to_owned());
        key.into_iter().chain(options.iter().map(|(option, separator)| format!("{option} {separator} "))).collect()
    })
}

/// One option that is often right, after a valid key.
pub(super) fn option_after_a_key() -> impl Strategy<Value = String> {
    (among(NAMES), value()).prop_map(|(name, value)| match name {
        "key" | "keys" => format!("{name} = {value}"),
        name => format!("key = id, {name} = {value}"),
    })
}
