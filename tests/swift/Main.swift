import Foundation
import XCTest

// The package's sources and tests in one program, for tests: `replay PIPELINE` runs its test on the record in RECORD, `ask` answers questions.

extension Bundle {
    static var module: Bundle { Bundle(path: ProcessInfo.processInfo.environment["RECORD"]!)! }
}

struct Question: Decodable {
    let ask: String
    var file: String?
    var out: String?
    var size: [Int]?
    var to: [Int]?
    var texts: [String]?
    var lists: [[Int]]?
}

enum Answer: Encodable {
    case lists([[Int]])
    case texts([String])
    case done
    case refused(String)

    func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        switch self {
        case .lists(let lists): try container.encode(lists)
        case .texts(let texts): try container.encode(texts)
        case .done: try container.encode("done")
        case .refused(let why): try container.encode(["refused": why])
        }
    }
}

func answer(_ question: Question) throws -> Answer {
    let file = URL(fileURLWithPath: question.file ?? "")
    switch question.ask {
    case "encode": return .lists(try (question.texts ?? []).map(Tokenizer(contentsOf: file).encode))
    case "sent": return .lists(try sent())
    case "decode": return .texts(try (question.lists ?? []).map(Tokenizer(contentsOf: file).decode))
    default:
        let (size, to) = (question.size ?? [], question.to ?? [])
        let image = try RgbImage(width: size[0], height: size[1], pixels: Array(Data(contentsOf: file)))
        let filters: [String: Filter] = ["bilinear": .bilinear, "bicubic": .bicubic]
        let resized = filters[question.ask].map { image.resized(width: to[0], height: to[1], $0) } ?? image.resizedWithoutAntialiasing(width: to[0], height: to[1])
        try Data(resized.pixels).write(to: URL(fileURLWithPath: question.out ?? ""))
        return .done
    }
}

/// The numbers of the values that calls are made with; each that is made has the next number.
func sent() throws -> [[Int]] {
    var (tensors, made) = (SentTensors<Int>(), 0)
    func values(_ method: String, _ inputs: any Tensor...) -> [Int] {
        tensors.values(for: inputs, of: method) { _ in
            made += 1
            return made
        }
    }
    let keys = try FloatTensor([1, 2, 3, 4], [4])
    func token(_ value: Int64) throws -> LongTensor { try LongTensor([value], [1]) }
    var other = keys.data
    other[0] = 9
    return [
        values("step", try token(1), keys), values("step", try token(2), keys), values("step", try token(2), try FloatTensor(keys.data, [4])),
        values("step", try token(3), try FloatTensor(other, [4])), values("step", try token(4), try FloatTensor(keys.data, [2, 2])), values("step", try token(5), keys),
        values("encode", keys), values("step", try token(6), keys),
    ]
}

func ask() throws {
    while let line = readLine() {
        let answered: Answer
        do { answered = try answer(JSONDecoder().decode(Question.self, from: Data(line.utf8))) } catch let error as ModelError { answered = .refused(error.description) }
        print(String(decoding: try JSONEncoder().encode(answered), as: UTF8.self))
    }
}

@main
struct Main {
    static func main() throws {
        switch CommandLine.arguments.last {
        case "segmentation": XCTMain([testCase([("testRecordedRuns", SegmentationTests.testRecordedRuns), ("refused", SegmentationTests.testPromptsOutsideThePhotoAreRefused)])], arguments: [""])
        case "captions": XCTMain([testCase([("testRecordedRuns", CaptionTests.testRecordedRuns), ("refused", CaptionTests.testTooManyTokensAreRefused)])], arguments: [""])
        case "speech": XCTMain([testCase([("testRecordedRuns", SpeechTests.testRecordedRuns), ("silence", SpeechTests.testSilenceIsNotDecoded)])], arguments: [""])
        case "video": XCTMain([testCase([("testRecordedRuns", VideoTests.testRecordedRuns), ("refused", VideoTests.testNoFramesAreRefused)])], arguments: [""])
        case "pose": XCTMain([testCase([("testRecordedRuns", PoseTests.testRecordedRuns), ("refused", PoseTests.testWrongLimitsAreRefused)])], arguments: [""])
        default: try ask()
        }
    }
}
