package android.media;

public class AudioRecord {
    public static final int READ_BLOCKING = 0;

    public AudioRecord(int audioSource, int sampleRateInHz, int channelConfig, int audioFormat, int bufferSizeInBytes) {}
    public static int getMinBufferSize(int sampleRateInHz, int channelConfig, int audioFormat) { return 0; }
    public void startRecording() {}
    public int read(float[] audioData, int offsetInFloats, int sizeInFloats, int readMode) { return 0; }
    public void release() {}
}
