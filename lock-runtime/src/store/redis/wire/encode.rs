//! How commands are written: those that each lock needs, by hand. The `redis` crate writes the others.

/// `SET lock token NX PX milliseconds`
pub(crate) fn claim(output: &mut Vec<u8>, lock: &str, token: &str, millis: u64) {
    output.extend_from_slice(b"*6\r\n$3\r\nSET\r\n");
    bulk(output, &[lock]);
    bulk(output, &[token]);
    output.extend_from_slice(b"$2\r\nNX\r\n$2\r\nPX\r\n");
    number(output, millis);
}

/// `GETRANGE lock 0 1023`: the owner's token, which is shorter. Another client's value may have any size.
pub(crate) fn owner(output: &mut Vec<u8>, lock: &str) {
    output.extend_from_slice(b"*4\r\n$8\r\nGETRANGE\r\n");
    bulk(output, &[lock]);
    output.extend_from_slice(b"$1\r\n0\r\n$4\r\n1023\r\n");
}

/// A server's own command for a deletion that compares first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delete {
    /// `DELIFEQ key value`, of Valkey 9.
    IfEq,
    /// `DELEX key IFEQ value`, of Redis 8.4.
    Ex,
}

/// Deletes the lock if it holds the token, and says how many have a queue for it: `EXISTS` of one key.
pub(crate) fn delete(output: &mut Vec<u8>, lock: &str, token: &str, delete: Delete) {
    output.extend_from_slice(match delete {
        Delete::IfEq => b"*3\r\n$7\r\nDELIFEQ\r\n",
        Delete::Ex => b"*4\r\n$5\r\nDELEX\r\n",
    });
    bulk(output, &[lock]);
    if delete == Delete::Ex {
        output.extend_from_slice(b"$4\r\nIFEQ\r\n");
    }
    bulk(output, &[token]);
    output.extend_from_slice(b"*2\r\n$6\r\nEXISTS\r\n");
    bulk(output, &["{", lock, "}:queue"]);
}

/// Begins a value of this kind and length. Lengths of two digits, which most have, are written in one step.
pub(super) fn header(output: &mut Vec<u8>, kind: u8, length: usize) {
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

/// Writes one argument, which has these parts.
pub(super) fn bulk(output: &mut Vec<u8>, parts: &[&str]) {
    header(output, b'$', parts.iter().map(|part| part.len()).sum());
    for part in parts {
        output.extend_from_slice(part.as_bytes());
    }
    output.extend_from_slice(b"\r\n");
}

pub(super) fn number(output: &mut Vec<u8>, number: u64) {
    bulk(output, &[itoa::Buffer::new().format(number)]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_length_is_written_in_decimal_digits() {
        for length in (0..300).chain([999, 1_000, 65_536, usize::MAX]) {
            let mut written = Vec::new();
            header(&mut written, b'$', length);
            assert_eq!(written, format!("${length}\r\n").as_bytes());
        }
    }

    proptest! {
        #[test]
        fn a_claim_is_written_as_the_redis_crate_writes_it(lock in ".*", token in ".*", millis: u64) {
            let mut written = Vec::new();
            claim(&mut written, &lock, &token, millis);
            let mut command = redis::cmd("SET");
            command.arg(&lock).arg(&token).arg("NX").arg("PX").arg(millis);
            prop_assert_eq!(written, command.get_packed_command());
            let mut written = Vec::new();
            owner(&mut written, &lock);
            prop_assert_eq!(written, redis::cmd("GETRANGE").arg(&lock).arg(0).arg(1023).get_packed_command());
        }

        #[test]
        fn a_deletion_is_written_as_the_redis_crate_writes_it(lock in ".*", token in ".*") {
            let queue = format!("{{{lock}}}:queue");
            for (form, name, word) in [(Delete::IfEq, "DELIFEQ", None), (Delete::Ex, "DELEX", Some("IFEQ"))] {
                let mut written = Vec::new();
                delete(&mut written, &lock, &token, form);
                let mut commands = redis::cmd(name).arg(&lock).arg(word).arg(&token).get_packed_command();
                commands.extend(redis::cmd("EXISTS").arg(&queue).get_packed_command());
                prop_assert_eq!(written, commands);
            }
        }
    }
}
