package android.graphics;

public class Matrix {
    public Matrix() {}
    public boolean invert(Matrix inverse) { throw new UnsupportedOperationException(); }
    public void mapPoints(float[] points) {}
}
