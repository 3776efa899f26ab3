/// A photo: red, green and blue of each pixel, row by row, upright.
public struct RgbImage: Sendable, Equatable {
    public let width: Int
    public let height: Int
    public let pixels: [UInt8]

    /// `pixels` is [height, width, 3]. Throws `ModelError` where it is not.
    public init(width: Int, height: Int, pixels: [UInt8]) throws {
        guard width > 0, height > 0, pixels.count == width * height * 3 else {
            throw ModelError("A photo of \(width) x \(height) pixels has \(width * height * 3) values, not \(pixels.count).")
        }
        self.init(checked: width, height, pixels)
    }

    private init(checked width: Int, _ height: Int, _ pixels: [UInt8]) {
        self.width = width
        self.height = height
        self.pixels = pixels
    }

    /// Resized with antialiasing, to the last level as Pillow does it: in two passes, in whole numbers.
    ///
    /// The height is first where it loses more than twice as many pixels as the width, as Pillow has it since version 13.
    public func resized(width: Int, height: Int, _ filter: Filter = .bilinear) -> RgbImage {
        let lost = (width: self.width - width, height: self.height - height)
        let (across, down) = (Taps(from: self.width, to: width, filter), Taps(from: self.height, to: height, filter))
        if lost.height > 0, lost.height > 2 * lost.width { return resampledDown(down).resampledAcross(across) }
        return resampledAcross(across).resampledDown(down)
    }

    /// Resized bilinearly without antialiasing, to the last level as torch does it for uint8.
    func resizedWithoutAntialiasing(width: Int, height: Int) -> RgbImage {
        resampledAcross(Taps(linearFrom: self.width, to: width)).resampledDown(Taps(linearFrom: self.height, to: height))
    }

    private func resampledAcross(_ taps: Taps) -> RgbImage {
        if taps.count == width { return self }
        var result = [UInt8](repeating: 0, count: taps.count * height * 3)
        pixels.withUnsafeBufferPointer { source in
            for y in 0..<height {
                for x in 0..<taps.count {
                    let first = (y * width + taps.starts[x]) * 3
                    let place = (y * taps.count + x) * 3
                    for channel in 0..<3 {
                        result[place + channel] = taps.weighed(x, source, at: first + channel, step: 3)
                    }
                }
            }
        }
        return RgbImage(checked: taps.count, height, result)
    }

    private func resampledDown(_ taps: Taps) -> RgbImage {
        if taps.count == height { return self }
        let row = width * 3
        var result = [UInt8](repeating: 0, count: taps.count * row)
        pixels.withUnsafeBufferPointer { source in
            for y in 0..<taps.count {
                for x in 0..<row {
                    result[y * row + x] = taps.weighed(y, source, at: taps.starts[y] * row + x, step: row)
                }
            }
        }
        return RgbImage(checked: width, taps.count, result)
    }

    /// The part of the photo with this corner.
    func cropped(left: Int, top: Int, width: Int, height: Int) -> RgbImage {
        var result: [UInt8] = []
        result.reserveCapacity(width * height * 3)
        for y in top..<(top + height) {
            let first = (y * self.width + left) * 3
            result += pixels[first..<(first + width * 3)]
        }
        return RgbImage(checked: width, height, result)
    }

    /// Each channel from 0 to 1, less its mean, over its standard deviation: [3, height, width].
    ///
    /// A table of the 256 levels gives the floats that computing each would.
    func normalised(mean: [Float], std: [Float]) -> [Float] {
        var result = [Float](repeating: 0, count: pixels.count)
        let plane = width * height
        for channel in 0..<3 {
            let levels = (0..<256).map { (Float($0) / 255 - mean[channel]) / std[channel] }
            for index in 0..<plane {
                result[channel * plane + index] = levels[Int(pixels[index * 3 + channel])]
            }
        }
        return result
    }
}

/// How much each pixel under a filter counts.
public enum Filter: Sendable {
    case bilinear
    case bicubic

    /// How far the filter reaches, in pixels.
    var support: Double { self == .bilinear ? 1 : 2 }

    func weight(at distance: Double) -> Double {
        let x = abs(distance)
        switch self {
        case .bilinear:
            return x < 1 ? 1 - x : 0
        case .bicubic:
            if x < 1 { return (1.5 * x - 2.5) * x * x + 1 }
            return x < 2 ? (((x - 5) * x + 8) * x - 4) * -0.5 : 0
        }
    }
}

/// Which pixels of a line make each pixel of the resized line, and their weights as whole numbers of 1 / 2^shift.
struct Taps {
    /// The first pixel for each of the new line.
    let starts: [Int]
    /// Where the weights of each pixel begin in `weights`, and at the end where they all end.
    private let places: [Int]
    private let weights: [Int]
    private let shift: Int

    /// How many pixels the new line has.
    var count: Int { starts.count }

    /// Pillow's: where the line gets shorter, the filter gets wider.
    init(from length: Int, to count: Int, _ filter: Filter) {
        let scale = Double(length) / Double(count)
        let stretch = max(scale, 1)
        let reach = filter.support * stretch
        var starts: [Int] = []
        var lines: [[Double]] = []
        for index in 0..<count {
            let centre = (Double(index) + 0.5) * scale
            let start = max(Int(centre - reach + 0.5), 0)
            let end = min(Int(centre + reach + 0.5), length)
            let line = (start..<end).map { filter.weight(at: (Double($0) - centre + 0.5) * (1 / stretch)) }
            let total = line.reduce(0, +)
            starts.append(start)
            lines.append(total == 0 ? line : line.map { $0 / total })
        }
        self.init(starts, lines, shift: 22)
    }

    /// torch's, without antialiasing: the two pixels beside each place.
    init(linearFrom length: Int, to count: Int) {
        let scale = Double(length) / Double(count)
        var starts: [Int] = []
        var lines: [[Double]] = []
        for index in 0..<count {
            let place = max(scale * (Double(index) + 0.5) - 0.5, 0)
            let start = min(Int(place), length - 1)
            let share = min(place - Double(start), 1)
            starts.append(start)
            lines.append(start + 1 < length ? [1 - share, share] : [1])
        }
        let greatest = lines.joined().max() ?? 1
        self.init(starts, lines, shift: (0..<22).first { Int(0.5 + greatest * Double(1 << ($0 + 1))) >= 1 << 15 } ?? 22)
    }

    private init(_ starts: [Int], _ lines: [[Double]], shift: Int) {
        self.starts = starts
        self.shift = shift
        places = lines.reduce(into: [0]) { $0.append($0[$0.count - 1] + $1.count) }
        weights = lines.joined().map { Int(($0 * Double(1 << shift)).rounded(.toNearestOrAwayFromZero)) }
    }

    /// The new pixel at `index`, of the values of `source` from `first` on, `step` apart.
    @inline(__always)
    func weighed(_ index: Int, _ source: UnsafeBufferPointer<UInt8>, at first: Int, step: Int) -> UInt8 {
        var sum = 1 << (shift - 1)
        var place = first
        for tap in places[index]..<places[index + 1] {
            sum += Int(source[place]) * weights[tap]
            place += step
        }
        return UInt8(min(max(sum >> shift, 0), 255))
    }
}
