//! [`Connection`]: a connection to a real server that returns replies and pushes unchanged.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use server_model::Reply;
use tests::server::Server;

pub(crate) struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
    pushes: VecDeque<Reply>,
}

impl Connection {
    pub(crate) fn to(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut connection = Self { stream, received: Vec::new(), pushes: VecDeque::new() };
        connection.ask(&[words(&["HELLO", "3"])]);
        connection
    }

    /// Sends commands in one write, and waits for all their replies.
    pub(crate) fn ask(&mut self, commands: &[Vec<Vec<u8>>]) -> Vec<Reply> {
        let mut bytes = Vec::new();
        for command in commands {
            Reply::Array(command.iter().cloned().map(Reply::Bulk).collect()).encode(&mut bytes);
        }
        self.stream.write_all(&bytes).unwrap();
        commands.iter().map(|_| self.reply()).collect()
    }

    /// The pushes so far, including all that earlier commands caused.
    pub(crate) fn take_pushes(&mut self) -> Vec<Reply> {
        // A server sends everything on a connection in order, so the pushes arrive before this reply.
        self.ask(&[words(&["PING"])]);
        self.pushes.drain(..).collect()
    }

    fn reply(&mut self) -> Reply {
        loop {
            match self.message() {
                Reply::Push(fields) if fields.first() == Some(&Reply::Bulk(b"message".to_vec())) => {
                    self.pushes.push_back(Reply::Push(fields));
                }
                reply => return reply,
            }
        }
    }

    fn message(&mut self) -> Reply {
        loop {
            if let Some(length) = tests::resp::length(&self.received).filter(|_| !self.received.is_empty()) {
                let bytes: Vec<u8> = self.received.drain(..length).collect();
                return read(&mut &bytes[..]);
            }
            let mut buffer = [0; 4096];
            let count = self.stream.read(&mut buffer).expect("the server answers");
            assert!(count > 0, "the server ended the connection");
            self.received.extend_from_slice(&buffer[..count]);
        }
    }
}

pub(crate) fn words(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// Reads a message off the front.
fn read(bytes: &mut &[u8]) -> Reply {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n").unwrap();
    let (kind, line) = (bytes[0], std::str::from_utf8(&bytes[1..end]).unwrap().to_owned());
    *bytes = &bytes[end + 2..];
    let number = || line.parse::<usize>().unwrap();
    let mut items = |count: usize| (0..count).map(|_| read(bytes)).collect::<Vec<_>>();
    match kind {
        b'+' => Reply::Simple(line),
        // A double, such as the score of a member.
        b',' => Reply::Bulk(line.into_bytes()),
        b'-' => Reply::Error(line),
        b':' => Reply::Integer(line.parse().unwrap()),
        b'_' => Reply::Nil,
        b'*' => Reply::Array(items(number())),
        b'>' => Reply::Push(items(number())),
        b'%' => Reply::Map((0..number()).map(|_| (items(1).remove(0), items(1).remove(0))).collect()),
        b'$' => {
            let text = bytes[..number()].to_vec();
            *bytes = &bytes[number() + 2..];
            Reply::Bulk(text)
        }
        other => panic!("a message of the kind {:?}", char::from(other)),
    }
}
