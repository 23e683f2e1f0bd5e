//! Cassandra nodes start, are killed and paused, and come back.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use onlooker_testkit::cassandra::{CassandraCluster, CassandraServer};
use onlooker_testkit::wait_until;

const SOON: Duration = Duration::from_secs(60);
const READY: u8 = 0x02;
const AUTHENTICATE: u8 = 0x03;

/// What a node answers to STARTUP (CQL protocol 4): the answer's opcode.
fn startup(address: &str) -> Option<u8> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    let body = b"\0\x01\0\x0bCQL_VERSION\0\x053.0.0";
    let mut frame = vec![4, 0, 0, 0, 1, 0, 0, 0, body.len() as u8];
    frame.extend(body);
    stream.write_all(&frame).ok()?;
    let mut head = [0; 9];
    stream.read_exact(&mut head).ok()?;
    Some(head[4])
}

#[test]
fn node_is_killed_paused_and_restarted() {
    let server = CassandraServer::start().unwrap();
    assert_eq!(startup(&server.address()), Some(READY));
    server.pause().unwrap();
    assert_eq!(startup(&server.address()), None);
    server.resume().unwrap();
    wait_until("an answer", SOON, || startup(&server.address()) == Some(READY)).unwrap();
    server.kill().unwrap();
    assert_eq!(startup(&server.address()), None);
    server.restart().unwrap();
    assert_eq!(startup(&server.address()), Some(READY));
}

#[test]
fn authenticated_node_asks_for_a_password() {
    let server = CassandraServer::builder().authenticated().start().unwrap();
    assert_eq!(startup(&server.address()), Some(AUTHENTICATE));
}

/// Three JVMs and 1.8 GB of memory: outside the quick suite.
#[test]
fn cluster_goes_on_without_one_of_three() {
    if !onlooker_testkit::full() {
        return;
    }
    let cluster = CassandraCluster::start().unwrap();
    let [first, second, third] = cluster.nodes() else { panic!("three nodes") };
    second.kill().unwrap();
    assert_eq!([first, third].map(|node| startup(&node.address())), [Some(READY); 2]);
    second.restart().unwrap();
    assert_eq!(startup(&second.address()), Some(READY));
    assert_eq!(cluster.addresses().len(), 3);
}
