import Foundation
#if canImport(Accelerate)
import Accelerate
#endif

/// The index of the greatest value, the first of equals.
func argmax(_ values: [Float]) -> Int {
    #if canImport(Accelerate)
    var greatest: Float = 0
    var index: vDSP_Length = 0
    vDSP_maxvi(values, 1, &greatest, &index, vDSP_Length(values.count))
    return Int(index)
    #else
    var best = 0
    for index in values.indices where values[index] > values[best] { best = index }
    return best
    #endif
}

/// The greatest absolute value; 0 where there are none.
func greatestMagnitude(_ values: [Float]) -> Float {
    #if canImport(Accelerate)
    return vDSP.maximumMagnitude(values)
    #else
    return values.reduce(0) { max($0, abs($1)) }
    #endif
}

/// The logarithm of the sum of the exponentials, minus infinity where there are none.
func logSumExp<Values: Sequence>(_ values: Values) -> Float where Values.Element == Float {
    let greatest = values.reduce(-Float.infinity, max)
    guard greatest > -Float.infinity else { return greatest }
    return greatest + Float(log(values.reduce(0.0) { $0 + exp(Double($1 - greatest)) }))
}

/// The values as probabilities that sum up to 1.
func softmax<Values: Sequence>(_ values: Values) -> [Float] where Values.Element == Float {
    let total = logSumExp(values)
    return values.map { exp($0 - total) }
}

/// The integer next to a number; of two equally near ones the even.
func rounded(_ value: Double) -> Int {
    Int(value.rounded(.toNearestOrEven))
}
