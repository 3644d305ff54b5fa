//! The relay with real sockets: faithful when nothing is impaired, and struck where a fault says so.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use agent_server::runtime::clock::Clock;
use load_driver::{
    plan::{Fault, FaultKind, FaultTarget},
    relay::{Relay, RelayOptions},
};
use proto::time::Micros;

/// Nothing here takes so long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(20);

fn options() -> RelayOptions {
    RelayOptions { seed: 7, connect_timeout: Duration::from_secs(5), namespace: None }
}

fn backend() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

/// A relay, and both ends of a connection through it.
fn connected() -> (Relay, TcpStream, TcpStream) {
    let (listener, address) = backend();
    let relay = Relay::start(&[address], options()).expect("starts");
    let (driver, server) = dial(&relay, &listener);
    (relay, driver, server)
}

fn dial(relay: &Relay, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let driver = TcpStream::connect(relay.addresses()[0]).expect("connects");
    let (server, _) = listener.accept().expect("accepts");
    for stream in [&driver, &server] {
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream.set_nodelay(true).expect("set");
    }
    (driver, server)
}

fn fault(kind: FaultKind) -> Fault {
    Fault { number: 0, at: Micros::ZERO, duration: Duration::from_mins(1), kind, target: FaultTarget::default(), fraction: 1.0 }
}

fn read(stream: &mut TcpStream, bytes: usize) -> Vec<u8> {
    let mut all = vec![0; bytes];
    stream.read_exact(&mut all).expect("bytes");
    all
}

/// What the next read says when there is no more to read.
fn end(stream: &mut TcpStream) -> Result<usize, ErrorKind> {
    stream.read(&mut [0; 16]).map_err(|error| error.kind())
}

fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("set");
    drop(stream);
}

#[test]
fn bytes_and_the_end_of_each_direction_pass_as_they_are() {
    let (_relay, mut driver, mut server) = connected();
    driver.write_all(b"hello").expect("written");
    driver.shutdown(Shutdown::Write).expect("shut");
    assert_eq!(read(&mut server, 5), b"hello");
    assert_eq!(end(&mut server), Ok(0), "FIN");
    server.write_all(b"still here").expect("the other half is open");
    assert_eq!(read(&mut driver, 10), b"still here");
    server.shutdown(Shutdown::Write).expect("shut");
    assert_eq!(end(&mut driver), Ok(0), "FIN");
}

#[test]
fn a_reset_is_a_reset_on_the_other_side_whoever_makes_it() {
    let (_relay, driver, mut server) = connected();
    reset(driver);
    assert_eq!(end(&mut server), Err(ErrorKind::ConnectionReset));
    let (_relay, mut driver, server) = connected();
    reset(server);
    assert_eq!(end(&mut driver), Err(ErrorKind::ConnectionReset));
    let (relay, mut driver, server) = connected();
    drop(relay);
    drop(server);
    assert!(end(&mut driver).is_ok_and(|n| n == 0) || end(&mut driver).is_err(), "a relay that is over leaves nobody hanging");
}

#[test]
fn a_sender_is_told_of_a_reset_while_its_receiver_takes_nothing() {
    let (_relay, mut driver, server) = connected();
    driver.set_nonblocking(true).expect("set");
    let mut sent = 0_usize;
    let mut quiet = 0;
    // Until every buffer on the way is full.
    while quiet < 50 {
        match driver.write(&vec![1; 65_536]) {
            Ok(bytes) => (sent, quiet) = (sent + bytes, 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                quiet += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(sent < 16 << 20, "what the receiver does not take is not taken from the sender: {sent}");
    reset(server);
    driver.set_nonblocking(false).expect("set");
    assert_eq!(end(&mut driver), Err(ErrorKind::ConnectionReset));
}

#[test]
fn much_passes_both_ways_at_once_and_nothing_is_lost() {
    let (_relay, driver, server) = connected();
    let size = 8 << 20;
    let byte = |at: usize| (at * 31 + at / 977) as u8;
    let send = move |mut stream: TcpStream| {
        let all: Vec<u8> = (0..size).map(byte).collect();
        stream.write_all(&all).expect("written");
        stream.shutdown(Shutdown::Write).expect("shut");
    };
    let receive = move |mut stream: TcpStream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("read");
        all.len() == size && all.iter().enumerate().all(|(at, got)| *got == byte(at))
    };
    let (driver_too, server_too) = (driver.try_clone().expect("cloned"), server.try_clone().expect("cloned"));
    let senders = [std::thread::spawn(move || send(driver)), std::thread::spawn(move || send(server))];
    let receivers = [std::thread::spawn(move || receive(driver_too)), std::thread::spawn(move || receive(server_too))];
    assert!(senders.into_iter().all(|one| one.join().is_ok()));
    assert!(receivers.into_iter().all(|one| one.join().expect("ends")));
}

/// A driver that dials a backend which is not there is refused, as without the relay; the dial that finds out is reset.
#[test]
fn a_backend_that_is_not_there_refuses_and_comes_back_on_its_port() {
    let (listener, address) = backend();
    let relay = Relay::start(&[address], options()).expect("starts");
    drop(dial(&relay, &listener));
    drop(listener);
    let mut said = Vec::new();
    for _ in 0..2_000 {
        match TcpStream::connect(relay.addresses()[0]) {
            Ok(mut stream) => {
                stream.set_read_timeout(Some(PATIENCE)).expect("set");
                said.push(end(&mut stream).expect_err("nobody is there to say anything"));
            }
            Err(error) => {
                said.push(error.kind());
                if error.kind() == ErrorKind::ConnectionRefused {
                    break;
                }
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(said.pop(), Some(ErrorKind::ConnectionRefused), "{said:?}");
    assert!(said.iter().all(|kind| *kind == ErrorKind::ConnectionReset), "{said:?}");
    let again = TcpListener::bind(address).expect("the same port");
    let mut driver = loop {
        match TcpStream::connect(relay.addresses()[0]) {
            Ok(stream) => break stream,
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionRefused),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    driver.set_read_timeout(Some(PATIENCE)).expect("set");
    driver.write_all(b"x").expect("written");
    // The look that found it listening comes first, and says nothing.
    loop {
        let (mut server, _) = again.accept().expect("accepts");
        server.set_read_timeout(Some(PATIENCE)).expect("set");
        if server.read(&mut [0; 1]).expect("read") == 1 {
            server.write_all(b"y").expect("written");
            break;
        }
    }
    assert_eq!(read(&mut driver, 1), b"y");
}

#[test]
fn a_door_that_is_shut_refuses_and_leaves_alone_what_stands() {
    let (listener, address) = backend();
    let relay = Relay::start(&[address], options()).expect("starts");
    let (mut driver, mut server) = dial(&relay, &listener);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(relay.shut(0));
    assert_eq!(TcpStream::connect(relay.addresses()[0]).expect_err("shut").kind(), ErrorKind::ConnectionRefused);
    driver.write_all(b"still").expect("written");
    assert_eq!(read(&mut server, 5), b"still");
    relay.open(0);
    while TcpStream::connect(relay.addresses()[0]).is_err() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// All figures come from one run, and the bound is one side only: nothing comes before its time.
#[test]
fn a_delay_delays_each_way_and_not_longer_than_it_lasts() {
    let (relay, mut driver, mut server) = connected();
    let delay = Duration::from_millis(150);
    let clock = Clock::start();
    let mut echo = || {
        let began = clock.now();
        driver.write_all(b"ping").expect("written");
        read(&mut server, 4);
        server.write_all(b"pong").expect("written");
        read(&mut driver, 4);
        clock.now() - began
    };
    echo();
    assert_eq!(relay.begin(&fault(FaultKind::Delay { delay, jitter: Duration::ZERO })), 1);
    assert!(echo() >= delay * 2);
    assert_eq!(relay.end(0), 0);
    let quickest = (0..5).map(|_| echo()).min().expect("some");
    assert!(quickest < delay, "{quickest:?}");
}

#[test]
fn a_stall_holds_bytes_and_the_reset_after_them_and_its_end_lets_them_go() {
    let (relay, mut driver, mut server) = connected();
    relay.begin(&fault(FaultKind::Stall));
    driver.write_all(b"held").expect("written");
    reset(driver);
    server.set_read_timeout(Some(Duration::from_millis(300))).expect("set");
    assert_eq!(end(&mut server), Err(ErrorKind::WouldBlock));
    server.set_read_timeout(Some(PATIENCE)).expect("set");
    relay.end(0);
    assert_eq!(read(&mut server, 4), b"held");
    assert_eq!(end(&mut server), Err(ErrorKind::ConnectionReset));
}

#[test]
fn a_black_hole_lets_nobody_hear_of_anything_until_both_are_reset() {
    let (listener, address) = backend();
    let relay = Relay::start(&[address], options()).expect("starts");
    let (mut driver, mut server) = dial(&relay, &listener);
    assert_eq!(relay.begin(&fault(FaultKind::Blackhole)), 1);
    driver.write_all(b"gone").expect("taken");
    driver.shutdown(Shutdown::Write).expect("shut");
    // One that comes later: it seems to stand, and the backend never hears of it.
    let mut later = TcpStream::connect(relay.addresses()[0]).expect("connects");
    later.write_all(b"gone too").expect("taken");
    for stream in [&mut server, &mut later] {
        stream.set_read_timeout(Some(Duration::from_millis(200))).expect("set");
        assert_eq!(end(stream), Err(ErrorKind::WouldBlock));
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
    }
    listener.set_nonblocking(true).expect("set");
    assert_eq!(listener.accept().expect_err("nobody").kind(), ErrorKind::WouldBlock);
    assert_eq!(relay.end(0), 1, "the later one");
    for stream in [&mut server, &mut driver, &mut later] {
        assert_eq!(end(stream), Err(ErrorKind::ConnectionReset));
    }
}

#[test]
fn a_share_of_the_connections_of_one_backend_is_reset_and_no_other() {
    let backends = [backend(), backend()];
    let relay = Relay::start(&[backends[0].1, backends[1].1], options()).expect("starts");
    let mut all = Vec::new();
    for n in 0..60 {
        let which = n % 2;
        let driver = TcpStream::connect(relay.addresses()[which]).expect("connects");
        let (server, _) = backends[which].0.accept().expect("accepts");
        all.push((which, driver, server));
    }
    let mut one = fault(FaultKind::Reset);
    (one.fraction, one.target.backend) = (0.5, Some(1));
    let struck = relay.begin(&one);
    assert!((5..=25).contains(&struck), "{struck}");
    for (_, driver, server) in &all {
        for stream in [driver, server] {
            stream.set_nonblocking(true).expect("set");
        }
    }
    let mut reset = [0; 2];
    for _ in 0..1_000 {
        for (which, driver, server) in &mut all {
            for stream in [driver, server] {
                reset[*which] += u64::from(end(stream) == Err(ErrorKind::ConnectionReset));
            }
        }
        if reset[1] >= 2 * struck {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(reset, [0, 2 * struck], "both sides of each");
}

#[test]
fn bandwidth_is_for_each_connection_and_each_way() {
    let (relay, mut driver, mut server) = connected();
    relay.begin(&fault(FaultKind::Bandwidth { bytes_per_s: 20_000 }));
    let clock = Clock::start();
    let began = clock.now();
    driver.write_all(&[7; 10_000]).expect("written");
    assert_eq!(read(&mut server, 10_000).len(), 10_000);
    let took = clock.now() - began;
    assert!(took >= Duration::from_millis(400), "{took:?}");
}

/// Nanoseconds of CPU of the threads of this process that have this name.
fn cpu_of(name: &str) -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc").flatten().map(|entry| entry.path());
    let named = tasks.filter(|task| std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == name));
    let spent = |task: std::path::PathBuf| -> Option<u64> {
        std::fs::read_to_string(task.join("schedstat")).ok()?.split_whitespace().next()?.parse().ok()
    };
    named.filter_map(spent).sum()
}

/// Echoes of 20 ms of audio through the relay and past it, in turn, so that whatever else the machine does strikes both. Prints what docs/faults.md tells
/// (`--nocapture --test-threads 1`, on an idle machine).
#[test]
fn what_an_unimpaired_relay_adds() {
    const FRAME: usize = 640;
    const ECHOES: usize = 2_000;
    let (listener, address) = backend();
    let relay = Relay::start(&[address], options()).expect("starts");
    let mut paths = [TcpStream::connect(address).expect("connects"), TcpStream::connect(relay.addresses()[0]).expect("connects")];
    for _ in 0..2 {
        let (mut server, _) = listener.accept().expect("accepts");
        server.set_nodelay(true).expect("set");
        std::thread::spawn(move || {
            let mut frame = [0; FRAME];
            while server.read_exact(&mut frame).is_ok() && server.write_all(&frame).is_ok() {}
        });
    }
    let clock = Clock::start();
    let mut took = [Vec::new(), Vec::new()];
    for _ in 0..ECHOES {
        for (path, took) in paths.iter_mut().zip(&mut took) {
            path.set_nodelay(true).expect("set");
            let began = clock.now();
            path.write_all(&[1; FRAME]).expect("written");
            read(path, FRAME);
            took.push((clock.now() - began).as_micros() as u64);
        }
    }
    let cpu_us = cpu_of("relay") as f64 / 1e3 / (2 * ECHOES) as f64;
    for all in &mut took {
        all.sort_unstable();
    }
    let at = |which: usize, share: f64| took[which][(ECHOES as f64 * share) as usize];
    println!(
        "echo of {FRAME} bytes, direct p50 {} us, p99 {} us; relayed p50 {} us, p99 {} us; the relay's CPU {cpu_us:.1} us a frame",
        at(0, 0.5),
        at(0, 0.99),
        at(1, 0.5),
        at(1, 0.99)
    );
    assert!(at(1, 0.5) < at(0, 0.5).max(20) * 20, "{} us through it, {} us past it", at(1, 0.5), at(0, 0.5));
}

#[test]
fn it_is_known_whose_connections_were_struck() {
    let ((first, one), (second, other)) = (backend(), backend());
    let relay = Relay::start(&[one, other], options()).expect("starts");
    let struck = |number| relay.struck(number).into_iter().collect::<Vec<_>>();
    let _first = dial(&relay, &first);
    let lasting = |number, fraction| Fault { number, fraction, ..fault(FaultKind::Stall) };
    assert_eq!((relay.begin(&lasting(0, 1.0)), relay.begin(&lasting(1, 1e-12))), (1, 0));
    assert_eq!((struck(0), struck(1)), (vec![0], vec![]));
    // One that comes while it lasts.
    let _second = (TcpStream::connect(relay.addresses()[1]).expect("connects"), second.accept().expect("accepts"));
    assert_eq!((struck(0), struck(1)), (vec![0, 1], vec![]));
    relay.end(0);
    assert!(struck(0).is_empty(), "it is over");
}
