//! Writes commands directly, without a `Cmd` of the `redis` crate.

/// Writes the header of a value of this kind and length. A length of one or two digits, as most have, takes one step.
#[inline]
pub fn header(output: &mut Vec<u8>, kind: u8, length: usize) {
    match u8::try_from(length) {
        Ok(length @ 0..10) => output.extend_from_slice(&[kind, b'0' + length, b'\r', b'\n']),
        Ok(length @ 10..100) => output.extend_from_slice(&[kind, b'0' + length / 10, b'0' + length % 10, b'\r', b'\n']),
        _ => {
            output.push(kind);
            output.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
            output.extend_from_slice(b"\r\n");
        }
    }
}

/// Writes one argument that consists of these parts.
#[inline]
pub fn bulk(output: &mut Vec<u8>, parts: &[&str]) {
    header(output, b'$', parts.iter().map(|part| part.len()).sum());
    for part in parts {
        output.extend_from_slice(part.as_bytes());
    }
    output.extend_from_slice(b"\r\n");
}

/// Writes a number as one argument.
#[inline]
pub fn number(output: &mut Vec<u8>, number: u64) {
    bulk(output, &[itoa::Buffer::new().format(number)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_written_in_decimal_digits() {
        for length in (0..300).chain([999, 1_000, 65_536, usize::MAX]) {
            let mut written = Vec::new();
            header(&mut written, b'$', length);
            assert_eq!(written, format!("${length}\r\n").as_bytes());
        }
    }
}
