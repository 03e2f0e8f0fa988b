//! Decodes gzip bodies as they arrive.
//!
//! A gzip body is a sequence of members, each with header, deflated data and trailer. Invariants: a body may
//! have any number of members; all bytes that can be decoded are returned before more input is awaited; a
//! piece of output has at most 64 KiB, and the next one is decoded only after the previous one was taken, so
//! that a decompression bomb costs time but no memory; a body that ends inside a member is an error.
//!
//! `flate2` inflates. Its gzip adaptors are not used: the readers request input before they drain the
//! inflater, which on a watch could delay the end of an event until the next event, and the writers do not
//! distinguish a truncated body from a wrong checksum. This file does not know HTTP.

use super::{ByteStream, SourceError};
use bytes::{Buf as _, Bytes, BytesMut};
use flate2::{Crc, Decompress, FlushDecompress, Status};
use futures::stream::{self, StreamExt as _};

/// Returns the decoded bytes of a gzip body.
pub(super) fn decode(body: ByteStream) -> ByteStream {
    stream::try_unfold((Gunzip::new(), body), |(mut gunzip, mut body)| async move {
        loop {
            if let Some(piece) = gunzip.next_piece()? {
                return Ok(Some((piece, (gunzip, body))));
            }
            match body.next().await {
                Some(chunk) => gunzip.push(chunk?),
                None => return gunzip.finish().map(|()| None),
            }
        }
    })
    .boxed()
}

/// Maximum size of a piece of output.
const OUTPUT_CHUNK_BYTES: usize = 64 * 1024;
/// Maximum size of a member header; servers write 10 bytes, or a few more for a file name.
const MAX_HEADER_BYTES: usize = 4 * 1024;
/// Size of a member trailer: checksum and length.
const TRAILER_BYTES: usize = 8;

/// The decoder without its stream: push a chunk, take pieces until there are none, push the next chunk.
struct Gunzip {
    /// The part of a member that follows in the input.
    part: Part,
    /// Input not yet consumed. Between chunks it holds at most an incomplete header or trailer.
    input: Bytes,
    inflate: Decompress,
    /// The checksum of the decoded bytes of the current member.
    crc: Crc,
    /// The buffer into which a piece is inflated before it is copied out with its exact size.
    scratch: Box<[u8]>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Header,
    Deflated,
    Trailer,
}

impl Gunzip {
    fn new() -> Self {
        Self {
            part: Part::Header,
            input: Bytes::new(),
            inflate: Decompress::new(false),
            crc: Crc::new(),
            scratch: vec![0; OUTPUT_CHUNK_BYTES].into_boxed_slice(),
        }
    }

    fn push(&mut self, chunk: Bytes) {
        if self.input.is_empty() {
            self.input = chunk;
        } else {
            let mut joined = BytesMut::with_capacity(self.input.len() + chunk.len());
            joined.extend_from_slice(&self.input);
            joined.extend_from_slice(&chunk);
            self.input = joined.freeze();
        }
    }

    /// Returns the next decoded bytes; `None` if a chunk must be pushed first.
    fn next_piece(&mut self) -> Result<Option<Bytes>, SourceError> {
        loop {
            match self.part {
                Part::Header => match header_len(&self.input)? {
                    Some(len) => {
                        self.input.advance(len);
                        self.part = Part::Deflated;
                    }
                    None => return Ok(None),
                },
                Part::Deflated => {
                    let (consumed, produced) = self.inflate()?;
                    if produced > 0 {
                        return Ok(Some(Bytes::copy_from_slice(&self.scratch[..produced])));
                    }
                    if consumed == 0 && self.part == Part::Deflated {
                        return Ok(None);
                    }
                }
                Part::Trailer if self.input.len() < TRAILER_BYTES => return Ok(None),
                Part::Trailer => self.end_member()?,
            }
        }
    }

    /// Inflates once into `scratch`; returns the number of bytes consumed and produced.
    fn inflate(&mut self) -> Result<(usize, usize), SourceError> {
        let (before_in, before_out) = (self.inflate.total_in(), self.inflate.total_out());
        let status = self
            .inflate
            .decompress(&self.input, &mut self.scratch, FlushDecompress::None)
            .map_err(|_| corrupt("invalid deflate data"))?;
        let consumed = difference(self.inflate.total_in(), before_in, self.input.len());
        let produced = difference(self.inflate.total_out(), before_out, self.scratch.len());
        self.input.advance(consumed);
        self.crc.update(&self.scratch[..produced]);
        if status == Status::StreamEnd {
            self.part = Part::Trailer;
        }
        Ok((consumed, produced))
    }

    /// Checks the trailer, which must be complete in `input`, and prepares for the next member.
    fn end_member(&mut self) -> Result<(), SourceError> {
        let (sum, len) = (self.input.get_u32_le(), self.input.get_u32_le());
        if sum != self.crc.sum() || len != self.crc.amount() {
            return Err(corrupt("the checksum does not match"));
        }
        self.crc.reset();
        self.inflate.reset(false);
        self.part = Part::Header;
        Ok(())
    }

    /// Checks that the input may end here. A body without members is valid and empty.
    fn finish(&self) -> Result<(), SourceError> {
        if self.part == Part::Header && self.input.is_empty() {
            Ok(())
        } else {
            Err(SourceError::GzipTruncated)
        }
    }
}

/// Returns how far a 64-bit counter advanced within a buffer of `limit` bytes.
fn difference(after: u64, before: u64, limit: usize) -> usize {
    usize::try_from(after - before).map_or(limit, |moved| moved.min(limit))
}

/// Returns the length of the member header at the start of `input`; `None` while it is incomplete (RFC 1952,
/// 2.3).
fn header_len(input: &[u8]) -> Result<Option<usize>, SourceError> {
    if !MAGIC.starts_with(&input[..input.len().min(MAGIC.len())]) {
        return Err(corrupt("no gzip header where a member should begin"));
    }
    let Some(&flags) = input.get(3) else { return Ok(None) };
    if flags & flag::RESERVED != 0 {
        return Err(corrupt("reserved header flags are set"));
    }
    match header_end(input, flags) {
        Some(end) if end <= input.len() => Ok(Some(end)),
        _ if input.len() > MAX_HEADER_BYTES => Err(corrupt("a member header does not end")),
        _ => Ok(None),
    }
}

/// Returns where the header ends, possibly beyond `input`; `None` while the length of the extra field or the
/// end of a text field is missing.
fn header_end(input: &[u8], flags: u8) -> Option<usize> {
    // The fields that every header has.
    let mut end = 10;
    if flags & flag::EXTRA != 0 {
        let len = input.get(end..end + 2)?;
        end += 2 + usize::from(u16::from_le_bytes([len[0], len[1]]));
    }
    for text in [flag::NAME, flag::COMMENT] {
        if flags & text != 0 {
            end += input.get(end..)?.iter().position(|&byte| byte == 0)? + 1;
        }
    }
    if flags & flag::CHECKSUM != 0 {
        end += 2;
    }
    Some(end)
}

/// The identification bytes and the only compression method, deflate.
const MAGIC: [u8; 3] = [0x1f, 0x8b, 8];

/// The header flags for optional fields.
mod flag {
    pub(super) const CHECKSUM: u8 = 1 << 1;
    pub(super) const EXTRA: u8 = 1 << 2;
    pub(super) const NAME: u8 = 1 << 3;
    pub(super) const COMMENT: u8 = 1 << 4;
    pub(super) const RESERVED: u8 = 0b1110_0000;
}

fn corrupt(violation: &'static str) -> SourceError {
    SourceError::GzipCorrupt { violation }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, GzBuilder, write::GzEncoder};
    use std::io::Write as _;

    fn member(plain: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    /// Decodes `chunks`; returns the output and the result.
    fn gunzip<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> (Vec<u8>, Result<(), SourceError>) {
        let (mut gunzip, mut plain) = (Gunzip::new(), Vec::new());
        for chunk in chunks {
            gunzip.push(Bytes::copy_from_slice(chunk));
            loop {
                match gunzip.next_piece() {
                    Ok(Some(piece)) => plain.extend_from_slice(&piece),
                    Ok(None) => break,
                    Err(error) => return (plain, Err(error)),
                }
            }
        }
        (plain, gunzip.finish())
    }

    #[test]
    fn output_does_not_depend_on_the_chunks() {
        let body = [member(b"one,"), member(b""), member(b"two")].concat();
        for cut in 0..=body.len() {
            let (plain, end) = gunzip([&body[..cut], &body[cut..]]);
            assert_eq!((plain.as_slice(), end.is_ok()), (b"one,two".as_slice(), true), "cut at {cut}");
        }
        let (plain, end) = gunzip(body.chunks(1));
        assert_eq!((plain.as_slice(), end.is_ok()), (b"one,two".as_slice(), true));
    }

    #[test]
    fn body_may_end_only_between_members() {
        let first = member(b"one,");
        let body = [first.clone(), member(b"two")].concat();
        for len in 0..body.len() {
            let (_, end) = gunzip([&body[..len]]);
            if len == 0 || len == first.len() {
                assert!(end.is_ok(), "{len}");
            } else {
                assert!(matches!(end, Err(SourceError::GzipTruncated)), "{len}: {end:?}");
            }
        }
    }

    #[test]
    fn flushed_bytes_are_returned_before_the_next_chunk() {
        // A reader that requests input before it has drained the inflater delays the end of an event until
        // the next event. That happens at sizes around the inflater's window and the output buffer.
        for size in [
            1,
            32 * 1024 - 1,
            32 * 1024,
            OUTPUT_CHUNK_BYTES,
            OUTPUT_CHUNK_BYTES + 1,
            3 * OUTPUT_CHUNK_BYTES + 7,
        ] {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
            encoder.write_all(&vec![b'x'; size]).unwrap();
            encoder.flush().unwrap();
            let (plain, end) = gunzip([encoder.get_ref().as_slice()]);
            assert_eq!(plain.len(), size);
            assert!(matches!(end, Err(SourceError::GzipTruncated)));
        }
    }

    #[test]
    fn decompression_bomb_is_returned_in_small_pieces() {
        let plain = vec![0; 32 << 20];
        let bomb = member(&plain);
        assert!(bomb.len() < 64 * 1024);
        let mut gunzip = Gunzip::new();
        gunzip.push(bomb.into());
        let mut total = 0;
        while let Some(piece) = gunzip.next_piece().unwrap() {
            assert!(piece.len() <= OUTPUT_CHUNK_BYTES);
            total += piece.len();
        }
        assert_eq!(total, plain.len());
        gunzip.finish().unwrap();
    }

    #[test]
    fn optional_header_fields_are_skipped() {
        let mut encoder = GzBuilder::new()
            .filename("f")
            .comment("c")
            .extra([1, 2, 3])
            .write(Vec::new(), Compression::fast());
        encoder.write_all(b"plain").unwrap();
        let mut body = encoder.finish().unwrap();
        for chunks in [body.len(), 1] {
            let (plain, end) = gunzip(body.chunks(chunks));
            assert_eq!((plain.as_slice(), end.is_ok()), (b"plain".as_slice(), true));
        }
        let header = header_len(&body).unwrap().unwrap();
        body[3] |= flag::CHECKSUM;
        body.splice(header..header, [0, 0]);
        assert_eq!(gunzip([body.as_slice()]).0, b"plain");
    }

    #[test]
    fn corruption_is_reported_with_its_cause() {
        let good = member(b"plain text that is long enough");
        let mut sum = good.clone();
        sum[good.len() - TRAILER_BYTES] ^= 1;
        let mut flags = good.clone();
        flags[3] = 0x80;
        let mut deflate = good.clone();
        deflate[10] = 0xff;
        let mut endless = good[..10].to_vec();
        endless[3] = flag::NAME;
        endless.resize(MAX_HEADER_BYTES + 1, b'n');
        let trailing = [good.as_slice(), b"\0"].concat();
        for (body, expected) in [
            (sum, "the checksum does not match"),
            (flags, "reserved header flags are set"),
            (deflate, "invalid deflate data"),
            (endless, "a member header does not end"),
            (trailing, "no gzip header where a member should begin"),
            (b"{\"kind\":".to_vec(), "no gzip header where a member should begin"),
        ] {
            let (_, end) = gunzip([body.as_slice()]);
            assert!(
                matches!(end, Err(SourceError::GzipCorrupt { violation }) if violation == expected),
                "{expected}: {end:?}"
            );
        }
    }
}
